#include "trireme/metrics/report.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/metrics/figures.h"
#include "trireme/metrics/markup.h"
#include "trireme/metrics/page.h"
#include "trireme/metrics/progress.h"
#include "trireme/picture/png.h"

namespace trireme {
namespace {

// "500.0", or "500.0 ± 12.3"; a dash when it was not measured.
std::string Return(double mean, double std = NAN) {
  if (!std::isfinite(mean)) return "–";
  return std::isfinite(std) ? fmt::format("{:.1f} ± {:.1f}", mean, std) : fmt::format("{:.1f}", mean);
}

std::string Seconds(double seconds) {
  if (!std::isfinite(seconds)) return "–";
  return seconds < 60 ? fmt::format("{:.2f} s", seconds) : FormatDuration(seconds);
}

std::string WithSeparators(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

// "0: 120, 1: 80, 3: 2"
std::string StalenessText(const std::vector<std::uint64_t>& histogram) {
  std::string text;
  for (std::size_t age = 0; age < histogram.size(); ++age) {
    if (histogram[age] == 0) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", age, histogram[age]);
  }
  return text;
}

// "1: 3, 2-3: 120, 16-31: 7"
std::string PowersText(const std::vector<std::uint64_t>& histogram) {
  std::string text;
  for (std::size_t i = 0; i < histogram.size(); ++i) {
    if (histogram[i] == 0) continue;
    const std::uint64_t first = std::uint64_t{1} << i;
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ",
                        i == 0 ? "1" : fmt::format("{}-{}", first, 2 * first - 1), histogram[i]);
  }
  return text;
}

std::string Verdict(const RunFacts& facts) {
  if (!facts.target) return "";
  const std::string target = fmt::format("Target {:g}", *facts.target);
  if (!facts.reached_target) return fmt::format("<p class=\"verdict\">{} not reached</p>\n", target);
  std::string text = target + " reached";
  if (facts.time_to_target_s) text += " in " + Seconds(*facts.time_to_target_s);
  if (facts.steps_to_target)
    text += fmt::format(", {} steps", FormatCount(static_cast<double>(*facts.steps_to_target)));
  return fmt::format("<p class=\"verdict good\">{}</p>\n", text);
}

// Every fact: its key in ResultJson, and its heading in the table of the report. Some are there only where they have
// something to say, and a few tell one of both alone.
Row FiguresOf(const RunFacts& facts) {
  const auto optional = [](const auto& value) { return value ? Json(*value) : Json(); };
  const auto seconds = [](const char* key, const char* heading, double value) {
    return Figure{key, heading, value, Seconds(value)};
  };
  const auto whole = [](const char* key, const char* heading, std::int64_t value) {
    return Figure{key, heading, value,
                  WithSeparators(static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0)))};
  };
  Row row = {{"env", "Environment", facts.env, facts.task()},
             {"env_options", "", facts.env_options},
             {"algo", "Algorithm", facts.algo},
             {"store", "Parameter store", facts.store},
             {"device", "Device", facts.device},
             {"precision", "Precision", facts.precision},
             {"products", "Products", facts.products},
             {"workers", "Workers", facts.workers},
             {"model_parallel", "Model parallel", facts.model_parallel},
             {"seed", "Seed", facts.seed},
             whole("steps", "Environment steps", facts.steps),
             seconds("wall_s", "Wall time", facts.wall_s),
             seconds("cpu_s", "CPU time", facts.cpu_s),
             {"steps_per_s", "", facts.steps_per_s},
             {"eval_return_mean", "Evaluation return", facts.eval_return_mean,
              Return(facts.eval_return_mean, facts.eval_return_std)},
             {"eval_return_std", "", facts.eval_return_std},
             {"eval_episodes", "Evaluation episodes", facts.eval_episodes}};
  const auto add = [&](const Figure& figure) { row.push_back(figure); };
  if (std::isfinite(facts.predicted_steps_per_s)) {
    add({"predicted_steps_per_s", "Steps/s while training", facts.predicted_steps_per_s,
         PredictionText(facts)});
    add({"training_steps_per_s", "", facts.training_steps_per_s});
  }
  if (!facts.env_note.empty()) add({"env_note", "Environment", facts.env_note});
  if (facts.env_failures > 0) {
    add({"env_failures", "Failures of environments", facts.env_failures,
         fmt::format("{}, the last time {}", facts.env_failures, facts.env_last_failure)});
    add({"env_last_failure", "", facts.env_last_failure});
  }
  if (!facts.env_warning.empty()) add({"env_warning", "Broken rules", facts.env_warning});
  if (facts.eval_cut_off > 0) add({"eval_cut_off", "of them cut off", facts.eval_cut_off});
  if (!facts.which.empty()) add({"which", "", facts.which});
  add({"best_return_mean", "", facts.best_return_mean});
  add({"best_return_std", "", facts.best_return_std});
  add({"best_steps", facts.best_steps ? "Best evaluation" : "", optional(facts.best_steps),
       fmt::format("{} after {} steps", Return(facts.best_return_mean, facts.best_return_std),
                   WithSeparators(static_cast<std::uint64_t>(facts.best_steps.value_or(0))))});
  add({"target", facts.target ? "Target" : "", optional(facts.target),
       fmt::format("{:g}, {}", facts.target.value_or(0), facts.reached_target ? "reached" : "not reached")});
  add({"reached_target", "", facts.reached_target});
  add({"time_to_target_s", facts.time_to_target_s ? "Time to target" : "", optional(facts.time_to_target_s),
       Seconds(facts.time_to_target_s.value_or(0))});
  add({"steps_to_target", facts.steps_to_target ? "Steps to target" : "", optional(facts.steps_to_target),
       whole("", "", facts.steps_to_target.value_or(0)).text});
  add({"bytes_sent", "Bytes sent", facts.bytes_sent, WithSeparators(facts.bytes_sent)});
  add({"messages_sent", "Messages sent", facts.messages_sent, WithSeparators(facts.messages_sent)});
  const double rounds = facts.rounds == 0 ? NAN : static_cast<double>(facts.rounds);
  const double bytes = static_cast<double>(facts.bytes_sent) / rounds;
  const double messages = static_cast<double>(facts.messages_sent) / rounds;
  add({"rounds", facts.rounds == 0 ? "" : "Updates", facts.rounds,
       fmt::format("{}, each with {:.1f} bytes in {:.2f} messages", WithSeparators(facts.rounds), bytes,
                   messages)});
  add({"bytes_per_round", "", bytes});
  add({"messages_per_round", "", messages});
  for (const LinkFacts& link : facts.links) {
    add({"", fmt::format("Worker {} to {}", link.worker, link.to), LinkText(link)});
  }
  add({"experience_bytes", "Memory for experience", facts.experience_bytes,
       FormatBytes(facts.experience_bytes)});
  for (std::size_t i = 0; i < facts.model_bytes.size(); ++i) {
    std::string text = FormatBytes(facts.model_bytes[i]);
    if (i < facts.bubbles.size()) {
      text += fmt::format(
          "; idle {:.1f} % of its updates, {:.1f} % by (stages - 1) / (micro-batches + stages - 1)",
          100 * facts.bubbles[i], 100 * facts.expected_bubble);
    }
    add({"", fmt::format("Parameters and moments of worker {}", i), text});
  }
  if (!facts.model_bytes.empty()) add({"model_bytes", "", facts.model_bytes});
  if (!facts.bubbles.empty()) {
    add({"bubbles", "", facts.bubbles});
    add({"expected_bubble", "", facts.expected_bubble});
  }
  WorkerFacts sum;
  Json workers = Json::array(), links = Json::array();
  for (const WorkerFacts& worker : facts.per_worker) {
    sum.idle_s += worker.idle_s;
    add({"", fmt::format("Worker {}", workers.size()),
         fmt::format("{} steps, busy {}, idle {}", WithSeparators(worker.steps), Seconds(worker.busy_s),
                     Seconds(worker.idle_s))});
    workers.push_back({{"steps", worker.steps}, {"busy_s", worker.busy_s}, {"idle_s", worker.idle_s}});
    if (facts.compress.empty()) continue;
    sum.bytes_saved += worker.bytes_saved;
    sum.compress_s += worker.compress_s;
    sum.decompress_s += worker.decompress_s;
    row.back().value =
        fmt::format("{}; {} saved {}, {} to compress, {} to decompress", row.back().value.get<std::string>(),
                    facts.compress,
                    FormatBytes(static_cast<std::uint64_t>(std::max<std::int64_t>(0, worker.bytes_saved))),
                    Seconds(worker.compress_s), Seconds(worker.decompress_s));
    workers.back()["bytes_saved"] = worker.bytes_saved;
    workers.back()["compress_s"] = worker.compress_s;
    workers.back()["decompress_s"] = worker.decompress_s;
  }
  add({"idle_s", "", sum.idle_s});
  if (!facts.compress.empty()) {
    add({"compress", "Codec of gradients", facts.compress});
    add({"bytes_saved", "", sum.bytes_saved});
    add({"compress_s", "", sum.compress_s});
    add({"decompress_s", "", sum.decompress_s});
  }
  add({"per_worker", "", workers});
  for (const LinkFacts& link : facts.links) {
    links.push_back({{"worker", link.worker},
                     {"to", link.to},
                     {"latency_s", link.latency_s},
                     {"bytes_per_s", link.bytes_per_s},
                     {"bytes", link.bytes},
                     {"messages", link.messages},
                     {"estimate_s", link.estimate_s},
                     {"waited_s", link.waited_s}});
  }
  if (!links.empty()) add({"links", "", links});
  if (facts.actors > 0) add({"actors", "Actors", facts.actors});
  if (!facts.lag.empty()) {
    add({"policy_lag_mean", "Policy lag", facts.lag_mean,
         fmt::format("mean {:.2f}, most {}; trajectories by age of their policy in versions: {}; {} too old",
                     facts.lag_mean, facts.lag_most, StalenessText(facts.lag), facts.too_old)});
    add({"policy_lag_max", "", facts.lag_most});
    add({"policy_lag_histogram", "", facts.lag});
    add({"too_old", "", facts.too_old});
  }
  if (!facts.inference_batches.empty()) {
    add({"inference_batch_mean", "Central inference", facts.inference_batch_mean,
         fmt::format("mean {:.1f} environments together; evaluations by their number: {}; {} without one who "
                     "was late",
                     facts.inference_batch_mean, PowersText(facts.inference_batches),
                     facts.inference_incomplete)});
    add({"inference_batch_histogram", "", facts.inference_batches});
    add({"inference_incomplete", "", facts.inference_incomplete});
    add({"inference_latency_us_mean", "Latency of choices", facts.inference_latency_us_mean,
         fmt::format("mean {:.0f} us; requests by microseconds: {}", facts.inference_latency_us_mean,
                     PowersText(facts.inference_latency_us))});
    add({"inference_latency_us_histogram", "", facts.inference_latency_us});
  }
  if (!facts.staleness.empty()) {
    add({"staleness_mean", "Staleness", facts.staleness_mean,
         fmt::format("mean {:.2f}, most {}; gradients by age in versions: {}", facts.staleness_mean,
                     facts.staleness_most, StalenessText(facts.staleness))});
    add({"staleness_max", "", facts.staleness_most});
    add({"staleness_histogram", "", facts.staleness});
  }
  add({"params_sha256", "Parameters, SHA-256", facts.params_sha256});
  return row;
}

std::string FactsTable(const RunFacts& facts) {
  std::string table = "<div class=\"card\"><table>\n";
  for (const Figure& figure : FiguresOf(facts)) {
    if (figure.heading.empty()) continue;
    table += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", EscapeMarkup(figure.heading),
                         EscapeMarkup(TextOf(figure)));
  }
  return table + "</table></div>\n";
}

std::string Base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // the function adds a zero
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::string StripHtml(const ReportStrip& strip) {
  if (strip.pictures.empty() && strip.note.empty()) return "";
  std::string html = "<h2>An evaluation episode of the best policy</h2>\n";
  if (!strip.note.empty()) html += fmt::format("<p class=\"note\">{}</p>\n", EscapeMarkup(strip.note));
  if (strip.pictures.empty()) return html;
  html += "<div class=\"strip\">\n";
  for (const auto& [picture, caption] : strip.pictures) {
    const std::string text = EscapeMarkup(caption);
    html += fmt::format(
        "<figure><img width=\"{}\" height=\"{}\" alt=\"{}\" src=\"data:image/png;base64,{}\">"
        "<figcaption>{}</figcaption></figure>\n",
        picture.width, picture.height, text, Base64(EncodePng(picture)), text);
  }
  return html + "</div>\n";
}

}  // namespace

std::string LinkText(const LinkFacts& link) {
  return fmt::format("{:.0f} us, {:.{}f} MB/s; {} in {} messages: {} by these figures, waited {}",
                     link.latency_s * 1e6, link.bytes_per_s / 1e6, link.bytes_per_s < 1e7 ? 2 : 0,
                     FormatBytes(link.bytes), FormatCount(static_cast<double>(link.messages)),
                     Seconds(link.estimate_s), Seconds(link.waited_s));
}

std::string PredictionText(const RunFacts& facts) {
  const double predicted = facts.predicted_steps_per_s, real = facts.training_steps_per_s;
  return fmt::format("{}, predicted {} by --parallel auto ({:+.0f} %)", FormatCount(real),
                     FormatCount(predicted), 100 * (real / predicted - 1));
}

std::string ResultJson(const RunFacts& facts) { return JsonOf(FiguresOf(facts)).dump(); }

LinePlot LearningCurve(const RunReport& report) {
  LinePlot plot;
  plot.title = fmt::format("{} with {}", report.facts.task(), report.facts.algo);
  plot.x_label = "environment steps";
  plot.y_label = "episode return";
  PlotSeries evaluation = report.evaluation;
  evaluation.name = "evaluation, held-out seeds";
  evaluation.markers = true;
  PlotSeries training = report.training;
  training.name = "training episodes";
  training.faint = true;
  plot.series = {std::move(evaluation), std::move(training)};
  std::erase_if(plot.series, [](const PlotSeries& series) { return series.x.empty(); });
  if (report.facts.target)
    plot.target = {*report.facts.target, fmt::format("target {:g}", *report.facts.target)};
  return plot;
}

std::string ReportHtml(const RunReport& report) {
  const RunFacts& facts = report.facts;
  const std::string name = EscapeMarkup(fmt::format("{} with {}", facts.task(), facts.algo));
  std::string html =
      fmt::format("<h1>{} <small>seed {}, {} {}, {}</small></h1>\n", name, facts.seed, facts.workers,
                  facts.workers == 1 ? "worker" : "workers", EscapeMarkup(facts.store));
  html += Verdict(facts);
  html += "<div class=\"tiles\">\n";
  html += HtmlTile(Return(facts.eval_return_mean),
                   fmt::format("mean return of {} evaluation episodes", facts.eval_episodes));
  if (facts.best_steps) html += HtmlTile(Return(facts.best_return_mean), "in the best evaluation");
  html += HtmlTile(Seconds(facts.wall_s), "wall time");
  html += HtmlTile(FormatCount(static_cast<double>(facts.steps)), "environment steps");
  html += HtmlTile(FormatCount(facts.steps_per_s), "steps per second");
  html +=
      "</div>\n<div class=\"card\">" + LearningCurve(report).ToSvg() + "</div>\n" + StripHtml(report.strip);
  if (!report.details.empty()) {
    html += "<h2>Inside the training</h2>\n<div class=\"grid\">\n";
    for (LinePlot plot : report.details) {
      plot.width = 400;
      plot.height = 240;
      html += "<div class=\"card\">" + plot.ToSvg() + "</div>\n";
    }
    html += "</div>\n";
  }
  html += "<h2>Facts</h2>\n" + FactsTable(facts);
  if (!report.config.empty()) {
    html += "<h2>Settings</h2>\n<div class=\"card\"><pre>" + EscapeMarkup(report.config) + "</pre></div>\n";
  }
  return HtmlPage(name + " – Trireme run", html);
}

void WriteReport(const std::filesystem::path& folder, const RunReport& report) {
  WriteFileAtomically(folder / "learning_curve.svg", LearningCurve(report).ToSvg());
  WriteFileAtomically(folder / "report.html", ReportHtml(report));
}

}  // namespace trireme
