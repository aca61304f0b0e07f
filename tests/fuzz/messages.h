// Messages of servers and workers out of an input: sane ones with some fields that are not, and bytes of any
// kind.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "input.h"
#include "trireme/server/payload.h"
#include "trireme/server/protocol.h"

namespace trireme::fuzz {

inline constexpr float kFloats[] = {1.0f,
                                    -0.5f,
                                    0.0f,
                                    3e38f,
                                    1e-40f,
                                    std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::quiet_NaN(),
                                    0.25f};
inline constexpr std::uint64_t kNumbers[] = {0, 1, 2, 3, 7, 1u << 20, std::uint64_t{1} << 48, UINT64_MAX};

inline float AnyFloat(Input& in) { return kFloats[in.Choice(std::size(kFloats))]; }
// `usual` most of the time.
inline std::uint64_t AnyNumber(Input& in, std::uint64_t usual) {
  const int choice = in.Choice(32);
  if (choice < static_cast<int>(std::size(kNumbers))) return kNumbers[choice];
  return choice < 12 ? usual + in.Byte() - 128 : usual;
}

// From one choice below 3 * 4: how workers take turns, and whether what they send is compressed.
inline constexpr int kWays = 12;
inline RunTerms FuzzTerms(int way, int servers) {
  constexpr const char* kCodecs[] = {"none", "int8", "topk=0.01", "powersgd=2"};
  const std::string codec = kCodecs[way / 3];
  return {.version = "1",
          .env = "Env",
          .algo = "algo",
          .network = "net",
          .seed = 7,
          .params = 1030,  // two blocks of the norm, so that two servers have a part each
          .work_shards = 8,
          .servers = servers,
          .pace = static_cast<Pace>(way % 3),
          .workers = 2,
          .staleness_bound = 1,
          .lease_s = 1,
          .round_s = 2,
          .compress = codec,
          .compress_params = codec == "powersgd=2" ? "onebit" : codec,
          .optimizer = {}};
}

inline Outgoing ToMessage(const std::string& bytes) {
  auto buffer = std::make_shared<AlignedBuffer<std::byte>>(bytes.size());
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  return buffer;
}

// The same with a codec's bytes behind the header: `encoded` of them, unless the input wants others.
inline Outgoing WithEncoded(Input& in, const Outgoing& message, std::size_t encoded) {
  const std::size_t sizes[] = {encoded, encoded, encoded, encoded + 1, 0, 1};
  const std::size_t size = sizes[in.Choice(std::size(sizes))];
  const std::string pattern = in.Text();
  std::string bytes(reinterpret_cast<const char*>(message->data()), message->size()), own(size, '\0');
  for (std::size_t i = 0; i < size && !pattern.empty(); ++i) own[i] = pattern[i % pattern.size()];
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.encoded = static_cast<std::uint32_t>(size);
  std::memcpy(bytes.data(), &header, sizeof header);
  return ToMessage(bytes.insert(sizeof header, own));
}

// All of the header but its kind, and the parts: `floats` floats unless the input wants others.
inline Outgoing AnyMessage(Input& in, Header header, std::size_t floats) {
  header.sequence = AnyNumber(in, header.sequence);
  header.version = AnyNumber(in, header.version);
  header.number = AnyNumber(in, header.number);
  header.steps = static_cast<std::int64_t>(AnyNumber(in, 4));
  header.operation = static_cast<std::uint32_t>(AnyNumber(in, 1));
  header.flags = in.Byte();
  header.learning_rate = AnyFloat(in);
  header.max_grad_norm = AnyFloat(in);
  ParameterGroups groups;
  const auto count = static_cast<std::size_t>(in.Choice(64));  // rarely any
  while (count <= ParameterGroups::kMost && groups.size() < count) {
    const std::uint64_t begin = AnyNumber(in, 100 * groups.size());
    groups.Append({begin, AnyNumber(in, begin + 100), AnyFloat(in), AnyFloat(in)});
  }
  header.leader = static_cast<std::int32_t>(AnyNumber(in, 0));
  header.members = static_cast<std::uint32_t>(AnyNumber(in, 2));
  header.boundary = AnyNumber(in, header.boundary);
  header.clock = AnyNumber(in, 0);
  const std::size_t sizes[] = {floats, floats, floats, floats, 0, floats + 2, 1, 3 * floats};
  const std::size_t size = sizes[in.Choice(std::size(sizes))];
  const std::vector<float> values(size, AnyFloat(in));
  const int numbers = in.Choice(4);
  const std::vector<double> doubles(numbers, static_cast<double>(AnyFloat(in)));
  return MakeMessage(header, values, doubles, EncodeGroups(groups) + in.Text());
}

}  // namespace trireme::fuzz
