#include <elf.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/plugin.h"

namespace trireme {
namespace {

// Reads structures of a file that may hold anything: nothing beyond its end is believed.
class ElfFile {
 public:
  explicit ElfFile(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T At(std::uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) Fail("it ends too early");
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  std::string TextAt(std::uint64_t offset) const {
    if (offset >= bytes_.size()) Fail("it ends too early");
    const std::string_view rest = bytes_.substr(offset);
    const std::size_t end = rest.find('\0');
    if (end == std::string_view::npos) Fail("it ends too early");
    return std::string(rest.substr(0, end));
  }

 private:
  std::string_view bytes_;
};

std::vector<Elf64_Phdr> Segments(const ElfFile& file) {
  const auto header = file.At<Elf64_Ehdr>(0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB) {
    Fail("it is no library for this machine");
  }
  std::vector<Elf64_Phdr> segments;
  for (int i = 0; i < header.e_phnum; ++i) {
    segments.push_back(file.At<Elf64_Phdr>(header.e_phoff + std::uint64_t{header.e_phentsize} * i));
  }
  return segments;
}

// Where in the file lies what is loaded to `address`.
std::uint64_t OffsetOf(std::uint64_t address, const std::vector<Elf64_Phdr>& segments) {
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD || address < segment.p_vaddr) continue;
    if (address - segment.p_vaddr < segment.p_filesz) return address - segment.p_vaddr + segment.p_offset;
  }
  Fail("its table of names is nowhere");
}

std::vector<std::string> Needed(const ElfFile& file) {
  const std::vector<Elf64_Phdr> segments = Segments(file);
  std::vector<std::uint64_t> names;  // from the start of the table of names
  std::optional<std::uint64_t> table;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= segment.p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = file.At<Elf64_Dyn>(segment.p_offset + at);
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED) names.push_back(entry.d_un.d_val);
      if (entry.d_tag == DT_STRTAB) table = OffsetOf(entry.d_un.d_ptr, segments);
    }
  }
  if (!names.empty() && !table) Fail("its table of names is nowhere");
  std::vector<std::string> libraries;
  for (const std::uint64_t name : names) libraries.push_back(file.TextAt(*table + name));
  return libraries;
}

}  // namespace

std::vector<std::string> NeededLibraries(const std::filesystem::path& file) {
  const std::string bytes = ReadFile(file);
  try {
    return Needed(ElfFile(bytes));
  } catch (const Error& error) {
    Fail("{} is not a library that can be loaded: {}", file.string(), error.what());
  }
}

}  // namespace trireme
