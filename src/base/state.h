// Named binary sections: how any object writes itself into a checkpoint and reads itself back.
//
// A StateWriter collects (name, bytes); a StateReader looks them up. Sizes are checked on reading, so an
// object that changed shape is refused with the section's name instead of reading nonsense. Section names are
// scoped with '/' by whoever owns the object ("shard/3/env/state").
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

// What a worker holds of a flat buffer, where several workers hold one together.
class HeldPart {
 public:
  virtual ~HeldPart() = default;
  virtual std::size_t whole_size() const = 0;
  // part <- what is held of `whole`.
  virtual void Take(std::span<const float> whole, std::span<float> part) const = 0;
};

class StateWriter {
 public:
  template <class T>
  void Put(const std::string& name, std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = std::as_bytes(values);
    const bool is_new = sections_.emplace(name, std::vector<std::byte>(bytes.begin(), bytes.end())).second;
    TRIREME_CHECK(is_new);
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void PutValue(const std::string& name, T value) { Put<T>(name, std::span<const T>(&value, 1)); }
  void PutText(const std::string& name, std::string_view text) {
    Put<char>(name, std::span<const char>(text.data(), text.size()));
  }

  // A section that is laid out as the parameters of the network. Where a worker holds a part of them, its section is
  // that part, until it is replaced by the whole.
  void PutLikeParams(const std::string& name, std::span<const float> values) {
    Put<float>(name, values);
    like_params_.push_back(name);
  }
  // In the order in which they came.
  const std::vector<std::string>& like_params() const { return like_params_; }
  std::vector<std::byte>& Section(const std::string& name) { return sections_.at(name); }

  // Takes over all sections of `other`, with `prefix` before their names, which must then be new.
  void Merge(StateWriter&& other, const std::string& prefix = "") {
    for (auto& [name, bytes] : other.sections_) {
      const bool is_new = sections_.emplace(prefix + name, std::move(bytes)).second;
      TRIREME_CHECK(is_new);
    }
    for (const std::string& name : other.like_params_) like_params_.push_back(prefix + name);
    other.sections_.clear();
    other.like_params_.clear();
  }
  // The same with what Encode() made. Throws Error when it is malformed.
  void Merge(std::string_view encoded, const std::string& prefix = "");

  // All sections as one byte string, in name order. The second form lets go of each section once it is
  // written.
  std::string Encode() const&;
  std::string Encode() &&;

 private:
  std::map<std::string, std::vector<std::byte>> sections_;
  std::vector<std::string> like_params_;
};

class StateReader {
 public:
  // Parses what StateWriter::Encode made; throws Error when it is malformed.
  explicit StateReader(std::string_view encoded);

  // The same state, with every name looked up behind `prefix`: what was merged with that prefix.
  StateReader Below(const std::string& prefix) const {
    StateReader below = *this;
    below.prefix_ += prefix;
    return below;
  }

  // The same state, of which GetLikeParams() reads what `part` holds. It outlives the reader.
  StateReader HeldAs(const HeldPart& part) const {
    StateReader held = *this;
    held.part_ = &part;
    return held;
  }

  // All sections as one byte string, as StateWriter::Encode makes it.
  std::string Encode() const;

  bool Has(const std::string& name) const { return sections_->contains(prefix_ + name); }

  // Copies a section into `values`; throws Error when it is missing or of another size.
  template <class T>
  void Get(const std::string& name, std::span<T> values) const {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::string& bytes = Section(name);
    if (bytes.size() != values.size_bytes()) {
      Fail("section '{}' holds {} bytes where {} are needed: it belongs to another network or setting", name,
           bytes.size(), values.size_bytes());
    }
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  // Of a section that StateWriter::PutLikeParams() made: all of it, or what is held of it.
  void GetLikeParams(const std::string& name, std::span<float> values) const {
    if (part_ == nullptr) return Get<float>(name, values);
    std::vector<float> whole(part_->whole_size());
    Get<float>(name, std::span<float>(whole));
    part_->Take(whole, values);
  }
  template <class T>
  T GetValue(const std::string& name) const {
    // A byte of a damaged file may be no bool at all.
    if constexpr (std::is_same_v<T, bool>) return GetValue<std::uint8_t>(name) != 0;
    T value{};
    Get<T>(name, std::span<T>(&value, 1));
    return value;
  }
  const std::string& GetText(const std::string& name) const { return Section(name); }

 private:
  const std::string& Section(const std::string& name) const;
  std::shared_ptr<const std::map<std::string, std::string>> sections_;
  std::string prefix_;
  const HeldPart* part_ = nullptr;
};

}  // namespace trireme
