#include "wav.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

namespace {

constexpr uint32_t kIntegers = 1, kFloats = 3, kExtensible = 0xfffe;

[[noreturn]] void fail(const std::string& path, const std::string& why) { throw std::runtime_error(path + ": " + why); }

// A little-endian number of the given bytes at `at`, which the caller has seen to be there.
uint32_t number(const std::vector<char>& data, size_t at, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint32_t{static_cast<unsigned char>(data[at + i])} << (8 * i);
  return value;
}

void append(std::string& data, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) data.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

struct Format {
  uint32_t kind = 0, channels = 0, rate = 0, bits = 0;
};

Format read_format(const std::string& path, const std::vector<char>& data, size_t at, size_t size) {
  if (size < 16) fail(path, "its format has " + std::to_string(size) + " bytes; 16 at least are right");
  Format format{number(data, at, 2), number(data, at + 2, 2), number(data, at + 4, 4), number(data, at + 14, 2)};
  // The kind then is the beginning of a longer name.
  if (format.kind == kExtensible && size >= 26) format.kind = number(data, at + 24, 2);
  if (format.channels != 1)
    fail(path, "it has " + std::to_string(format.channels) + " channels; this program takes one");
  const bool integers = format.kind == kIntegers && format.bits == 16;
  if (!integers && !(format.kind == kFloats && format.bits == 32))
    fail(path, "its samples are of kind " + std::to_string(format.kind) + " with " + std::to_string(format.bits) +
                   " bits; this program takes integers (kind 1) of 16 bits and floats (kind 3) of 32");
  return format;
}

float sample_at(const std::vector<char>& data, size_t at, bool is_float) {
  if (!is_float) return static_cast<float>(static_cast<int16_t>(number(data, at, 2))) / 32768.0F;
  const uint32_t bits = number(data, at, 4);
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

Sound read_wav(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, "cannot be opened");
  const std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
  const auto is = [&](size_t at, const char* name) { return std::memcmp(data.data() + at, name, 4) == 0; };
  if (data.size() < 12 || !is(0, "RIFF") || !is(8, "WAVE")) fail(path, "is no WAV file");
  Format format;
  // Chunks: a name, a length, and that many bytes, padded to an even number.
  for (size_t at = 12; data.size() - at >= 8;) {
    const size_t size = number(data, at + 4, 4), begin = at + 8, left = data.size() - begin;
    if (size > left)
      fail(path, "a part of it is said to have " + std::to_string(size) + " bytes, and the file ends after " +
                     std::to_string(left));
    if (is(at, "fmt ")) format = read_format(path, data, begin, size);
    if (is(at, "data")) {
      if (format.channels == 0) fail(path, "its samples come before their format");
      Sound sound{format.rate, format.kind == kFloats, {}};
      const size_t bytes = format.bits / 8;
      for (size_t i = 0; i < size / bytes; ++i)
        sound.samples.push_back(sample_at(data, begin + i * bytes, sound.is_float));
      return sound;
    }
    at = begin + std::min(size + size % 2, left);
  }
  fail(path, "has no samples: it ends before them");
}

void write_wav(const std::string& path, const Sound& sound) {
  const size_t width = sound.is_float ? 4 : 2, bytes = sound.samples.size() * width;
  if (bytes > std::numeric_limits<uint32_t>::max() - 36) fail(path, "would be longer than a WAV file can be");
  const auto size = static_cast<uint32_t>(bytes), sample = static_cast<uint32_t>(width);
  std::string data = "RIFF";
  append(data, 36 + size, 4);
  data += "WAVEfmt ";
  append(data, 16, 4);
  append(data, sound.is_float ? kFloats : kIntegers, 2);
  append(data, 1, 2);  // channels
  append(data, sound.rate, 4);
  append(data, sound.rate * sample, 4);
  append(data, sample, 2);
  append(data, 8 * sample, 2);
  data += "data";
  append(data, size, 4);
  for (const float value : sound.samples) {
    uint32_t bits = 0;
    if (sound.is_float)
      std::memcpy(&bits, &value, sizeof bits);
    else
      bits = static_cast<uint32_t>(std::lround(std::clamp(value * 32768.0F, -32768.0F, 32767.0F)));
    append(data, bits, static_cast<int>(width));
  }
  std::ofstream file(path, std::ios::binary);
  file.write(data.data(), static_cast<std::streamsize>(data.size()));
  file.close();
  if (!file) fail(path, "cannot be written");
}
