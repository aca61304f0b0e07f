#include "trireme/server/protocol.h"

#include "trireme/codec/difference.h"
#include "trireme/optim/clip.h"

namespace trireme {

Header ReadHeader(Incoming& message) {
  const std::size_t size = message.size();
  if (size < sizeof(Header)) Fail("a message of {} bytes has no header", size);
  Header header;
  message.Read(std::as_writable_bytes(std::span(&header, 1)));
  if (std::string_view(header.magic, 4) != std::string_view(Header().magic, 4)) {
    Fail("a message of another protocol or version: run the same Trireme on workers and servers");
  }
  // Each count is bounded by the size of the message before they are added up: no overflow.
  if (header.encoded > size || header.floats > size || header.doubles > size || header.bytes > size ||
      MessageWriter::Size(header) != size) {
    Fail("a message of {} bytes claims {} compressed ones, {} floats, {} doubles and {} bytes", size,
         header.encoded, header.floats, header.doubles, header.bytes);
  }
  return header;
}

AlignedBuffer<std::byte> ReadEncoded(Incoming& message, const Header& header) {
  AlignedBuffer<std::byte> bytes(header.encoded, AlignedBuffer<std::byte>::kUninitialised);
  message.Read(bytes.span());
  return bytes;
}

std::vector<double> ReadDoubles(Incoming& message, const Header& header) {
  std::vector<double> values(header.doubles);
  message.Read(std::as_writable_bytes(std::span(values)));
  return values;
}

std::string ReadText(Incoming& message, const Header& header) {
  std::string text(header.bytes, '\0');
  message.Read(std::as_writable_bytes(std::span(text)));
  return text;
}

void RunTerms::Fields(ConfigFields& field) {
  field("version", version, "of the program");
  field("pace", pace, "how workers take turns", kPaceNames);
  field("env", env, "environment");
  field("algo", algo, "algorithm");
  field("network", network, "layers");
  field("seed", seed, "of the run");
  field("params", params, "parameters of the network", Between(1, 1e12));
  field("work_shards", work_shards, "shards of a step", AtLeast(1));
  field("servers", servers, "parts of the parameters", Between(1, kMostServers));
  field("workers", workers, "in step: how many take part", Between(1, kMostWorkers));
  field("backup_workers", backup_workers, "in step: how many a round does without",
        Between(0, kMostWorkers - 1));
  field("staleness_bound", staleness_bound, "ssp: how far the fastest may be ahead", NonNegative());
  field("staleness_scaled", staleness_scaled, "smaller steps for older gradients");
  field("lease_s", lease_s, "silence after which a worker is given up", Between(0.1, 86400));
  field("round_s", round_s, "the longest wait for a worker that is alive", Between(0.1, 86400));
  field("compress", compress, "how gradients travel");
  field("compress_params", compress_params, "how parameters travel");
  field("precision", precision, "in step: bits that networks are computed with");
  optimizer.Fields(field);
}

void RunTerms::CheckCodecs() const {
  MakeCodecOrNone(compress);
  CheckDifferenceCodec(compress_params);
}

namespace {

template <class Config>
std::string ToText(const Config& config) {
  Config copy = config;
  ConfigFields fields;
  fields.Add(copy);
  return fields.ToToml();
}

template <class Config>
Config FromText(std::string_view text) {
  Config config;
  ConfigFields fields;
  fields.Add(config);
  fields.ApplyToml(text, "greeting");
  return config;
}

}  // namespace

std::string RunTerms::Encode() const { return ToText(*this); }
RunTerms RunTerms::Decode(std::string_view text) { return FromText<RunTerms>(text); }

void RunTerms::CheckEqual(const RunTerms& theirs) const {
  RunTerms ours = *this, other = theirs;
  ConfigFields our_fields, other_fields;
  our_fields.Add(ours);
  other_fields.Add(other);
  for (const std::string& name : our_fields.Names()) {
    const std::string a = our_fields.Get(name), b = other_fields.Get(name);
    if (a == b) continue;
    Fail("the run of this server has {} {}, the worker {}: give both the same, or the server another --dir",
         name, a, b);
  }
}

PartRange RangeOfServer(const RunTerms& terms, int index) {
  const std::size_t blocks = NormBlocks(terms.params);
  const auto start = [&](std::size_t i) {
    return std::min<std::size_t>(terms.params, blocks * i / terms.servers * kNormBlock);
  };
  return {.begin = start(index), .size = start(index + 1) - start(index)};
}

void Greeting::Fields(ConfigFields& field) {
  field("worker", worker, "its id");
  field("rank", rank, "or -1", Between(-1, kHighestRank));
  field("clock", clock, "its pushes so far", Between(0, kMostUpdates));
  field("candidate", candidate, "may lead");
  field("server", server, "the part of the parameters", AtLeast(0));
  field("continues", continues, "in the middle of an operation");
  field("anew", anew, "the boundary to begin at, or -1", Between(-1, kMostUpdates));
  field("boundary", boundary, "what it is called now", Between(0, kMostUpdates));
  terms.Fields(field);
}

std::string Greeting::Encode() const { return ToText(*this); }

Greeting Greeting::Decode(std::string_view text) {
  Greeting greeting = FromText<Greeting>(text);
  if (greeting.server >= greeting.terms.servers)
    Fail("there is no server {} of {}", greeting.server, greeting.terms.servers);
  greeting.terms.CheckCodecs();
  return greeting;
}

}  // namespace trireme
