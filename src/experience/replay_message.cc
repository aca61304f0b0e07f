#include "trireme/experience/replay_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/state.h"
#include "trireme/env/spec_state.h"
#include "trireme/experience/message_parts.h"

namespace trireme {
namespace {

constexpr std::size_t kLongestId = 200;
constexpr std::size_t kInCache = 1 << 17;  // bytes of records that are read before they are unpacked

}  // namespace

std::string ReplayRun::Encode() const {
  StateWriter out;
  out.PutText("run", id);
  SaveSpec(shape.env, out);
  out.PutValue<std::uint8_t>("kept", static_cast<std::uint8_t>(shape.env.kept));
  out.PutText("looks", looks);
  out.PutText("settings", settings);
  const std::uint64_t counts[] = {static_cast<std::uint64_t>(shape.steps),
                                  static_cast<std::uint64_t>(shape.envs),
                                  rules.capacity,
                                  static_cast<std::uint64_t>(rules.n_step),
                                  part,
                                  params,
                                  seed,
                                  server,
                                  servers,
                                  learner};
  out.Put<std::uint64_t>("counts", counts);
  const double numbers[] = {rules.gamma,           rules.alpha, rules.epsilon,
                            rate.draws_per_insert, rate.least,  rate.slack};
  out.Put<double>("numbers", numbers);
  return std::move(out).Encode();
}

ReplayRun ReplayRun::Decode(const std::string& text) {
  const StateReader in(text);
  ReplayRun run;
  run.id = in.GetText("run");
  if (run.id.empty() || run.id.size() > kLongestId) Fail("the run has no name, or a long one");
  std::optional<EnvSpec> env = SavedSpec(in);
  if (!env) Fail("what is to be remembered was not said");
  run.shape.env = *std::move(env);
  const auto kept = in.GetValue<std::uint8_t>("kept");
  std::uint64_t counts[10];
  in.Get<std::uint64_t>("counts", counts);
  double numbers[6];
  in.Get<double>("numbers", numbers);
  run.looks = in.GetText("looks");
  run.settings = in.GetText("settings");
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  const bool counts_fit = counts[0] > 0 && counts[0] < kMost && counts[1] > 0 && counts[1] < kMost &&
                          counts[0] * counts[1] < kMost && counts[2] > 0 && counts[2] < kMost &&
                          counts[3] > 0 && counts[3] <= 1000 && counts[4] > 0 && counts[4] < kMost &&
                          counts[5] > 0 && counts[8] > 0 && counts[8] <= 1024 && counts[7] < counts[8] &&
                          counts[9] < 4096;
  const auto unit = [](double x) { return x >= 0 && x <= 1; };
  const bool numbers_fit = unit(numbers[0]) && unit(numbers[1]) && unit(numbers[2]) && numbers[3] > 0 &&
                           std::isfinite(numbers[3]) && numbers[4] >= 0 && std::isfinite(numbers[4]) &&
                           std::isfinite(numbers[5]);
  if (!counts_fit || !numbers_fit || kept > static_cast<std::uint8_t>(Precision::kFp16))
    Fail("what is to be remembered makes no sense");
  run.shape.env.kept = static_cast<Precision>(kept);
  run.shape.steps = static_cast<int>(counts[0]);
  run.shape.envs = static_cast<int>(counts[1]);
  run.rules = {.capacity = counts[2],
               .n_step = static_cast<int>(counts[3]),
               .gamma = numbers[0],
               .alpha = numbers[1],
               .epsilon = numbers[2]};
  run.part = counts[4];
  run.params = counts[5];
  run.seed = counts[6];
  run.server = static_cast<std::uint32_t>(counts[7]);
  run.servers = static_cast<std::uint32_t>(counts[8]);
  run.learner = static_cast<std::uint32_t>(counts[9]);
  run.rate = {.draws_per_insert = numbers[3], .least = numbers[4], .slack = numbers[5]};
  const double samples = static_cast<double>(run.shape.steps) * run.shape.envs;
  if (run.rate.slack < run.rate.LeastSlack(samples, static_cast<double>(run.part)))
    Fail("a slack of {:g} lets neither actors nor learners go on", run.rate.slack);
  return run;
}

std::string ReplayRun::Identity() const {
  return fmt::format(
      "{}, of {} parameters; trajectories of {} steps of {} environments; {} transitions over {} steps with "
      "gamma {:g}, "
      "drawn with alpha {:g} and epsilon {:g}; server {} of {}",
      looks, params, shape.steps, shape.envs, rules.capacity, rules.n_step, rules.gamma, rules.alpha,
      rules.epsilon, server + 1, servers);
}

Outgoing EncodeTurn(const ReplayTurn& turn, std::span<const std::uint64_t> numbers,
                    std::span<const float> errors) {
  TRIREME_CHECK(turn.corrected == numbers.size() && numbers.size() == errors.size());
  MessageParts writer(sizeof(ReplayWord) + sizeof turn + numbers.size_bytes() + errors.size_bytes());
  writer.PutOne(ReplayWord::kTurn);
  writer.PutOne(turn);
  writer.Put(numbers);
  writer.Put(errors);
  return writer.Done();
}

std::size_t DrawPadding(std::size_t part, std::size_t record_size) { return part * (1 + record_size) % 2; }

std::size_t AnswerBytes(std::size_t draws, std::size_t part, std::size_t record_size) {
  const std::size_t floats = part * (1 + record_size) + DrawPadding(part, record_size);
  return sizeof(ReplayAnswer) + draws * (part * sizeof(std::uint64_t) + floats * sizeof(float));
}

ReplayAnswer DecodeAnswer(Incoming& message, std::size_t part, std::size_t record_size, std::size_t most) {
  const std::size_t bytes = message.size();
  if (bytes < sizeof(ReplayAnswer)) Fail("a message of {} bytes is no draw", bytes);
  const auto answer = ReadOne<ReplayAnswer>(message);
  if (answer.draws > most || bytes != AnswerBytes(answer.draws, part, record_size))
    Fail("a message of {} bytes is not {} draws of {} transitions, of {} at most", bytes, answer.draws, part,
         most);
  return answer;
}

void DecodeDraw(Incoming& message, const RowLayout& layout, int action_size, AlignedBuffer<float>& records,
                ReplayDraw& draw) {
  const std::size_t record_size = ReplayBuffer::RecordSize(layout, action_size);
  ReadTo(message, std::span(draw.numbers));
  ReadTo(message, std::span(draw.weights));
  const std::size_t at_once =
      std::clamp<std::size_t>(kInCache / (record_size * sizeof(float)), 1, draw.size());
  if (records.size() != at_once * record_size) records = AlignedBuffer<float>(at_once * record_size);
  for (std::size_t first = 0; first < draw.size(); first += at_once) {
    const std::size_t n = std::min(at_once, draw.size() - first);
    ReadTo(message, records.span().first(n * record_size));
    ReplayBuffer::Unpack(layout, action_size, records.span(), first, n, draw.transitions);
  }
  if (DrawPadding(draw.size(), record_size) != 0) ReadOne<float>(message);
}

}  // namespace trireme
