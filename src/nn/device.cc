#include "trireme/nn/device.h"

#include <algorithm>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/parse.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";

std::optional<Device> ParseDevice(std::string_view text) {
  if (text == "fused") return Device{};
  if (text == "cpu") return Device{.kind = Device::Kind::kCpu};
  if (text == "cuda") return Device{.kind = Device::Kind::kCuda};
  if (!text.starts_with(kCudaPrefix)) return std::nullopt;
  const std::string_view digits = text.substr(kCudaPrefix.size());
  constexpr std::size_t kMostDigits = 4;
  if (digits.empty() || digits.size() > kMostDigits || digits.find_first_not_of("0123456789") != digits.npos)
    return std::nullopt;
  return Device{.kind = Device::Kind::kCuda, .index = std::stoi(std::string(digits))};
}

}  // namespace

std::string Device::name() const {
  switch (kind) {
    case Kind::kFused:
      return "fused";
    case Kind::kCpu:
      return "cpu";
    case Kind::kCuda:
      break;
  }
  return fmt::format("{}{}", kCudaPrefix, index);
}

std::vector<Device> ParseDevices(std::string_view text) {
  std::vector<Device> devices;
  for (std::string_view rest = text;;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view one = Trim(rest.substr(0, comma));
    const std::optional<Device> device = ParseDevice(one);
    if (!device) {
      const std::string known[] = {"fused", "cpu", "cuda", "cuda:0"};
      Fail(
          "device = {}: '{}' is no device.{} Say fused (the default), cpu, cuda, or several as in "
          "cuda:0,cuda:1; `trireme devices` lists what is here",
          text, one, SuggestNearest(one, known));
    }
    if (std::ranges::find(devices, *device) != devices.end()) {
      Fail("device = {}: {} is there twice; more workers on one device are --workers", text, device->name());
    }
    devices.push_back(*device);
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  const bool all_cuda =
      std::ranges::all_of(devices, [](const Device& device) { return device.kind == Device::Kind::kCuda; });
  if (devices.size() > 1 && !all_cuda) {
    Fail("device = {}: only CUDA devices can be several, as in cuda:0,cuda:1", text);
  }
  return devices;
}

std::string TextOf(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) text += fmt::format("{}{}", text.empty() ? "" : ",", device.name());
  return text;
}

}  // namespace trireme
