// WAV files of one channel: 16-bit integers or 32-bit floats, little-endian as all RIFF files are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct Sound {
  uint32_t rate = 0;           // samples a second
  bool is_float = false;       // how the file has them; integers are a part of 32768 here
  std::vector<float> samples;  // full scale is 1
};

// Throws std::runtime_error with the file's name where it can't be read, is no WAV file, ends too early, or has another
// number of channels or another type.
Sound read_wav(const std::string& path);

// Integers are rounded to the nearest, and clipped at full scale. Throws std::runtime_error where the file can't be
// written, or would be longer than a WAV file can be (4 GiB).
void write_wav(const std::string& path, const Sound& sound);
