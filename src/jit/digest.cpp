#include "jit/digest.h"

#include <fmt/format.h>
#include <llvm/Support/BLAKE3.h>

namespace weft::jit {

std::string digest(const std::vector<std::string_view>& texts) {
  llvm::BLAKE3 hasher;
  for (std::string_view text : texts) {
    const uint64_t size = text.size();  // so that no text takes a part of its neighbour
    hasher.update(llvm::StringRef(reinterpret_cast<const char*>(&size), sizeof(size)));
    hasher.update(llvm::StringRef(text.data(), text.size()));
  }
  std::string digits;
  for (uint8_t byte : hasher.final()) digits += fmt::format("{:02x}", byte);
  return digits;
}

}  // namespace weft::jit
