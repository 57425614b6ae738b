#include "base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <string_view>

namespace weft {
namespace {

struct Search {
  ElfW(Addr) address;  ///< of something in the binary that is looked for
  std::string found;
};

size_t aligned(size_t bytes) { return (bytes + 3) / 4 * 4; }

/// The build ID among the notes of a segment.
std::string id_in(std::string_view notes) {
  constexpr std::string_view kOwner{"GNU\0", 4};
  ElfW(Nhdr) note;
  while (notes.size() >= sizeof(note)) {
    std::memcpy(&note, notes.data(), sizeof(note));
    notes.remove_prefix(sizeof(note));
    const size_t name = aligned(note.n_namesz), all = name + aligned(note.n_descsz);
    if (all > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(0, note.n_namesz) == kOwner) {
      std::string digits;
      for (const char byte : notes.substr(name, note.n_descsz))
        digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
      return digits;
    }
    notes.remove_prefix(all);
  }
  return "";
}

int look(dl_phdr_info* binary, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool is_wanted = false;
  std::string id;
  for (int i = 0; i < binary->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = binary->dlpi_phdr[i];
    const ElfW(Addr) first = binary->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD) is_wanted |= search.address >= first && search.address - first < segment.p_memsz;
    if (segment.p_type == PT_NOTE && id.empty())
      id = id_in({reinterpret_cast<const char*>(first), static_cast<size_t>(segment.p_memsz)});
  }
  if (is_wanted) search.found = std::move(id);
  return is_wanted ? 1 : 0;
}

}  // namespace

std::string build_id() {
  static const char here = 0;
  Search search{reinterpret_cast<ElfW(Addr)>(&here), ""};
  dl_iterate_phdr(&look, &search);
  return search.found;
}

}  // namespace weft
