#include "trireme/base/state.h"

#include <cstdint>

#include "trireme/base/state_sections.h"

namespace trireme {
namespace {

void AppendSize(std::string& out, std::uint64_t size) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(size >> shift));
}

std::uint64_t TakeSize(std::string_view& in) {
  if (in.size() < 8) Fail("the saved state ends in the middle of a section");
  std::uint64_t size = 0;
  for (int i = 0; i < 8; ++i) size |= std::uint64_t{static_cast<unsigned char>(in[i])} << (8 * i);
  in.remove_prefix(8);
  return size;
}

std::string_view TakeView(std::string_view& in) {
  const std::uint64_t size = TakeSize(in);
  if (size > in.size()) Fail("the saved state ends in the middle of a section");
  const std::string_view bytes = in.substr(0, size);
  in.remove_prefix(size);
  return bytes;
}

std::string TakeBytes(std::string_view& in) { return std::string(TakeView(in)); }

std::size_t EncodedSize(const auto& sections) {
  std::size_t size = 0;
  for (const auto& [name, bytes] : sections) size += 16 + name.size() + bytes.size();
  return size;
}

void Append(const std::string& name, const auto& bytes, std::string& out) {
  AppendSize(out, name.size());
  out += name;
  AppendSize(out, bytes.size());
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

void StateWriter::Merge(std::string_view encoded, const std::string& prefix) {
  while (!encoded.empty()) {
    const std::string name = prefix + TakeBytes(encoded);
    const std::string_view bytes = TakeView(encoded);
    if (sections_.contains(name)) Fail("the saved state has two sections '{}'", name);
    Put<char>(name, std::span<const char>(bytes.data(), bytes.size()));
  }
}

std::string StateWriter::Encode() const& {
  std::string out;
  out.reserve(EncodedSize(sections_));
  for (const auto& [name, bytes] : sections_) Append(name, bytes, out);
  return out;
}

std::string StateWriter::Encode() && {
  std::string out;
  out.reserve(EncodedSize(sections_));
  for (auto& [name, bytes] : sections_) {
    Append(name, bytes, out);
    bytes = {};
  }
  sections_.clear();
  return out;
}

StateReader::StateReader(std::string_view encoded) {
  auto sections = std::make_shared<std::map<std::string, std::string>>();
  while (!encoded.empty()) {
    const std::string name = TakeBytes(encoded);
    const bool is_new = sections->emplace(name, TakeBytes(encoded)).second;
    if (!is_new) Fail("the saved state has two sections '{}'", name);
  }
  sections_ = std::move(sections);
}

// Names and sizes first, so that what is wanted is read into memory of just its size.
std::string PickSections(std::istream& in, std::uint64_t bytes, const KeepSection& keep) {
  struct Range {
    std::uint64_t begin, size;
  };
  std::vector<Range> wanted;
  std::uint64_t at = 0, total = 0;
  const std::streamoff start = in.tellg();
  const auto read = [&](std::string& to) {
    if (to.size() > bytes - at) Fail("the saved state ends in the middle of a section");
    if (!in.read(to.data(), static_cast<std::streamsize>(to.size()))) Fail("the saved state cannot be read");
    at += to.size();
  };
  const auto read_size = [&] {
    std::string encoded(8, '\0');
    read(encoded);
    std::string_view view = encoded;
    const std::uint64_t size = TakeSize(view);
    if (size > bytes - at) Fail("the saved state ends in the middle of a section");
    return size;
  };
  while (at < bytes) {
    const std::uint64_t begin = at;
    std::string name(read_size(), '\0');
    read(name);
    const std::uint64_t size = read_size();
    at += size;
    in.seekg(start + static_cast<std::streamoff>(at));
    if (!keep(name)) continue;
    wanted.push_back({begin, at - begin});
    total += at - begin;
  }
  std::string kept(total, '\0');
  char* to = kept.data();
  for (const Range& range : wanted) {
    in.seekg(start + static_cast<std::streamoff>(range.begin));
    in.read(to, static_cast<std::streamsize>(range.size));
    to += range.size;
  }
  if (!in) Fail("the saved state cannot be read");
  return kept;
}

std::string StateReader::Encode() const {
  std::string out;
  out.reserve(EncodedSize(*sections_));
  for (const auto& [name, bytes] : *sections_) Append(name, bytes, out);
  return out;
}

const std::string& StateReader::Section(const std::string& name) const {
  const auto it = sections_->find(prefix_ + name);
  if (it == sections_->end()) Fail("the saved state has no section '{}'", prefix_ + name);
  return it->second;
}

}  // namespace trireme
