// Plays a WAV file through the packaged amplifier, and says how much faster than the sound that is.
//
// Usage: player IN.wav OUT.wav   (one channel, 48 kHz, 16-bit integers or floats; OUT is of the same type)

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "amp.hpp"
#include "wav.h"

namespace {

constexpr uint32_t kRate = 48000;
constexpr size_t kBlock = 64;  // samples at a time, as an audio program gets them

// Seconds that the model took.
double play(const Sound& in, Sound& out) {
  weft::State state(amp::model());
  if (!state.ok()) throw std::runtime_error("there is no memory for the model's state");
  const auto begin = std::chrono::steady_clock::now();
  for (size_t at = 0; at < in.samples.size(); at += kBlock) {
    const void* inputs[] = {in.samples.data() + at};
    void* outputs[] = {out.samples.data() + at};
    const int status = state.run(inputs, outputs, std::min(kBlock, in.samples.size() - at));
    if (status != WEFT_OK) throw std::runtime_error("the model ends with status " + std::to_string(status));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: player IN.wav OUT.wav\n");
    return 2;
  }
  try {
    const Sound in = read_wav(argv[1]);
    if (in.rate != kRate)
      throw std::runtime_error(std::string(argv[1]) + ": it has " + std::to_string(in.rate) +
                               " samples a second; the amplifier was learned at 48000");
    Sound out = in;
    const double spent = play(in, out), length = static_cast<double>(in.samples.size()) / kRate;
    write_wav(argv[2], out);
    std::printf("%.2f s of sound in %.4f s on %s: %.1f times real time\n", length, spent, amp::model()->target,
                length / std::max(spent, 1e-9));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "player: %s\n", error.what());
    return 1;
  }
}
