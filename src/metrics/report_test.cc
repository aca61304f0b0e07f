#include "trireme/metrics/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "trireme/base/file.h"
#include "trireme/metrics/test_util.h"

namespace trireme {
namespace {

RunReport Sample() {
  RunReport report;
  report.facts = {.env = "CartPole-v1",
                  .algo = "ppo",
                  .store = "allreduce",
                  .workers = 2,
                  .seed = 7,
                  .steps = 1'234'567,
                  .wall_s = 0.48,
                  .cpu_s = 0.91,
                  .steps_per_s = 412'000,
                  .eval_return_mean = 498.25,
                  .eval_return_std = 3.5,
                  .eval_episodes = 100,
                  .best_return_mean = 499.5,
                  .best_return_std = 1.5,
                  .best_steps = 1'200'000,
                  .target = 475.0,
                  .reached_target = true,
                  .time_to_target_s = 0.43,
                  .steps_to_target = 98'304,
                  .params_sha256 = std::string(64, 'a'),
                  .bytes_sent = 4096,
                  .messages_sent = 12};
  for (int i = 0; i <= 100; ++i) {
    const double x = 1000.0 * i;
    const double mean = 500 / (1 + std::exp(-(i - 45) / 9.0));
    report.training.x.push_back(x);
    report.training.y.push_back(mean + 25 * std::sin(i * 1.7) * std::cos(i * 0.9));
    if (i % 10 != 0) continue;
    report.evaluation.x.push_back(x);
    report.evaluation.y.push_back(mean);
    report.evaluation.low.push_back(mean - 20);
    report.evaluation.high.push_back(mean + 20);
  }
  for (const char* name : {"policy loss", "value loss", "entropy"}) {
    LinePlot plot{name, "environment steps", "", {{"", report.training.x, {}}}, {}};
    for (int i = 0; i <= 100; ++i)
      plot.series[0].y.push_back(0.7 * std::exp(-i / 40.0) + 0.02 * std::sin(i * 2.1));
    report.details.push_back(plot);
  }
  report.config = "env = \"CartPole-v1\"\nlr = 3e-4\n";
  return report;
}

TEST(Report, SaysWhatCodecsSavedAndTook) {
  RunReport report = Sample();
  report.facts.per_worker = {{.steps = 10,
                              .busy_s = 4,
                              .idle_s = 1,
                              .bytes_saved = 3'000'000,
                              .compress_s = 0.25,
                              .decompress_s = 0.5}};
  EXPECT_EQ(ReportHtml(report).find("to compress"), std::string::npos);
  report.facts.compress = "int8";
  const std::string html = ReportHtml(report);
  EXPECT_NE(html.find("; int8 saved 3.0 MB, 0.25 s to compress, 0.50 s to decompress"), std::string::npos)
      << html;
}

TEST(Report, ShowsEveryFact) {
  const std::string html = ReportHtml(Sample());
  for (const char* part :
       {"CartPole-v1 with ppo", "allreduce", "seed 7, 2 workers", "1,234,567", "0.48 s", "0.91 s", "412k",
        "498.2 ± 3.5", "499.5 ± 1.5 after 1,200,000 steps", "Target 475 reached in 0.43 s, 98.3k steps",
        "98,304", "4,096", "aaaaaaaa", "lr = 3e-4", "policy loss", "value loss", "entropy"}) {
    EXPECT_TRUE(Contains(html, part));
  }
}

// The rare ones: what is there in every run is checked above and where runs are made.
TEST(Report, TableAndJsonTellTheSameFacts) {
  RunReport report = Sample();
  RunFacts& facts = report.facts;
  EXPECT_FALSE(Contains(ResultJson(facts), "links"));
  EXPECT_TRUE(Contains(ResultJson(facts), R"("rounds":0,"bytes_per_round":null,"messages_per_round":null)"));
  facts.rounds = 8;
  facts.per_worker = {{.steps = 1000, .busy_s = 2, .idle_s = 0.5},
                      {.steps = 2000, .busy_s = 1, .idle_s = 1.5}};
  facts.links = {
      {.worker = 1, .to = "there", .latency_s = 1e-3, .bytes_per_s = 5e6, .bytes = 7, .messages = 3}};
  facts.staleness = {4, 0, 2};
  facts.staleness_mean = 0.75;
  facts.inference_batches = {1, 0, 5};
  facts.inference_batch_mean = 4.5;
  facts.inference_incomplete = 3;
  facts.inference_latency_us = {0, 7};
  facts.inference_latency_us_mean = 2.5;
  facts.env_failures = 3;
  facts.env_last_failure = "it broke";
  const std::string json = ResultJson(facts), html = ReportHtml(report);
  for (const char* part :
       {R"("rounds":8,"bytes_per_round":512.0,"messages_per_round":1.5)", R"("idle_s":2.0)",
        R"("per_worker":[{"steps":1000,"busy_s":2.0,"idle_s":0.5},{"steps":2000)",
        R"("links":[{"worker":1,"to":"there","latency_s":0.001,)", R"("staleness_histogram":[4,0,2])",
        R"("inference_batch_mean":4.5,"inference_batch_histogram":[1,0,5],"inference_incomplete":3)",
        R"("inference_latency_us_mean":2.5,"inference_latency_us_histogram":[0,7])",
        R"("env_failures":3,"env_last_failure":"it broke")"}) {
    EXPECT_TRUE(Contains(json, part)) << part << json;
  }
  for (const char* part :
       {"8, each with 512.0 bytes in 1.50 messages", "2,000 steps, busy 1.00 s, idle 1.50 s",
        "Worker 1 to there", "mean 0.75, most 0; gradients by age in versions: 0: 4, 2: 2",
        "mean 4.5 environments together; evaluations by their number: 1: 1, 4-7: 5; 3 without one who was "
        "late",
        "requests by microseconds: 2-3: 7", "3, the last time it broke"}) {
    EXPECT_TRUE(Contains(html, part)) << part;
  }
}

TEST(Report, IsSelfContained) {
  const std::string html = ReportHtml(Sample());
  for (const char* part : {"<script", "<link", "<img", "src=", "href=", "url(", "@import"}) {
    EXPECT_FALSE(Contains(html, part));
  }
  EXPECT_EQ(html.find("http"), html.find("http://www.w3.org/2000/svg"));
}

TEST(Report, HasPicturesOfAnEpisode) {
  RunReport report = Sample();
  EXPECT_FALSE(Contains(ReportHtml(report), "An evaluation episode"));
  for (int i = 0; i < 3; ++i) {
    Picture picture;
    picture.Fill(4 + i, 3, {static_cast<std::uint8_t>(50 * i), 0, 0});
    report.strip.pictures.push_back({picture, fmt::format("<step {}>", i)});
  }
  const std::string html = ReportHtml(report);
  EXPECT_TRUE(Contains(html, "An evaluation episode of the best policy"));
  EXPECT_TRUE(Contains(html, "&lt;step 2&gt;"));
  // As another tool encodes the signature and header of a PNG picture of 5 x 3 pixels.
  EXPECT_TRUE(Contains(html,
                       "width=\"5\" height=\"3\" alt=\"&lt;step 1&gt;\" "
                       "src=\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAADCAIA"));
  std::size_t count = 0;
  for (std::size_t at = html.find("src="); at != std::string::npos; at = html.find("src=", at + 1)) {
    EXPECT_EQ(html.compare(at, 27, "src=\"data:image/png;base64,"), 0);
    ++count;
  }
  EXPECT_EQ(count, 3u);
}

TEST(Report, SaysWhyThereAreNoPictures) {
  RunReport report = Sample();
  report.strip.note = "There are no pictures: <why>";
  EXPECT_TRUE(Contains(ReportHtml(report), "There are no pictures: &lt;why&gt;"));
}

TEST(Report, TargetMissedOrNotAskedFor) {
  RunReport report = Sample();
  report.facts.reached_target = false;
  report.facts.time_to_target_s.reset();
  report.facts.steps_to_target.reset();
  std::string html = ReportHtml(report);
  EXPECT_TRUE(Contains(html, "Target 475 not reached"));
  EXPECT_FALSE(Contains(html, "Time to target"));
  report.facts.target.reset();
  html = ReportHtml(report);
  EXPECT_FALSE(Contains(html, "arget 475"));
  EXPECT_FALSE(Contains(html, "<p class=\"verdict"));
}

TEST(Report, EverythingIsEscaped) {
  const std::string evil = "<b onload=\"x\">&'";
  RunReport report = Sample();
  report.facts.env = report.facts.env_options = report.facts.algo = report.facts.store =
      report.facts.params_sha256 = evil;
  report.config = "</pre>" + evil;
  report.details[0].title = report.details[0].x_label = report.details[0].y_label = evil;
  const std::string html = ReportHtml(report);
  EXPECT_FALSE(Contains(html, "<b onload"));
  EXPECT_FALSE(Contains(html, "</pre>&lt;b"));
  EXPECT_TRUE(Contains(html, "&lt;b onload=&quot;x&quot;&gt;&amp;&#39;"));
}

TEST(Report, ARunThatMeasuredNothingStillHasAReport) {
  RunReport report;
  report.facts.eval_return_mean = report.facts.eval_return_std = report.facts.steps_per_s = NAN;
  const std::string html = ReportHtml(report);
  EXPECT_TRUE(Contains(html, ">no data<"));
  EXPECT_TRUE(Contains(html, "–"));
  EXPECT_FALSE(Contains(html, "nan"));
}

TEST(Report, LearningCurveHasBothSeriesAndTheTarget) {
  const LinePlot plot = LearningCurve(Sample());
  ASSERT_EQ(plot.series.size(), 2u);
  EXPECT_TRUE(plot.series[0].markers);
  EXPECT_TRUE(plot.series[1].faint);
  ASSERT_TRUE(plot.target);
  EXPECT_EQ(plot.target->y, 475);
  EXPECT_EQ(plot.target->label, "target 475");
}

TEST(Report, WritesBothFilesWhole) {
  TestFolder folder;
  const RunReport report = Sample();
  WriteReport(folder.path(), report);
  EXPECT_EQ(ReadFile(folder / "report.html"), ReportHtml(report));
  EXPECT_EQ(ReadFile(folder / "learning_curve.svg"), LearningCurve(report).ToSvg());
}

TEST(Report, DiskFullKeepsTheOldReport) {
  TestFolder folder;
  RunReport report = Sample();
  WriteReport(folder.path(), report);
  const std::string before = ReadFile(folder / "report.html");
  report.facts.seed = 8;
  {
    FileSizeLimit limit(100);
    EXPECT_TRUE(Contains(ErrorOf([&] { WriteReport(folder.path(), report); }), folder.path().string()));
  }
  EXPECT_EQ(ReadFile(folder / "report.html"), before);
}

TEST(Report, MissingFolderIsNamed) {
  TestFolder folder;
  EXPECT_TRUE(Contains(ErrorOf([&] { WriteReport(folder / "gone", Sample()); }), "gone"));
}

}  // namespace
}  // namespace trireme
