// GB/s of gradient, one core: every codec, encoding and decoding a million floats, beside a copy of as many.
#include <fmt/format.h>

#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "timing.h"
#include "trireme/base/rng.h"
#include "trireme/codec/codec.h"

namespace {

// Of this thread: what neighbours take of the machine does not count.
double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Act>
double MedianSeconds(Act&& act) {
  std::vector<double> seconds;
  for (int i = 0; i < 41; ++i) {
    const double begun = ProcessorSeconds();
    act();
    seconds.push_back(ProcessorSeconds() - begun);
  }
  return trireme::Median(seconds);
}

}  // namespace

int main() {
  using namespace trireme;
  constexpr std::size_t kSize = 1 << 20;
  std::vector<float> gradient(kSize), decoded(kSize);
  RandomStream random(1, Purpose::kTest, 0, 0);
  for (float& value : gradient) value = static_cast<float>(random.NextNormal() * 1e-3);
  const auto rate = [](double seconds) { return kSize * sizeof(float) / seconds / 1e9; };
  fmt::print("{:<14} {:>12} {:>12} {:>14}\n", "codec", "encode GB/s", "decode GB/s", "times smaller");
  fmt::print(
      "{:<14} {:>12.2f}\n", "copy",
      rate(MedianSeconds([&] { std::memcpy(decoded.data(), gradient.data(), kSize * sizeof(float)); })));
  for (const char* text : {"fp16", "bf16", "int8", "onebit", "topk=0.01", "topk=0.001", "powersgd=4"}) {
    const auto codec = MakeCodec(text);
    CodecState state = codec->MakeState(kSize);
    std::vector<std::byte> message(codec->bytes(kSize));
    const double encode_s = MedianSeconds([&] { codec->Encode(gradient, state, message); });
    const double decode_s = MedianSeconds([&] { codec->Decode(message, decoded); });
    fmt::print("{:<14} {:>12.2f} {:>12.2f} {:>14.1f}\n", text, rate(encode_s), rate(decode_s),
               kSize * sizeof(float) / static_cast<double>(message.size()));
  }
}
