#include "trireme/metrics/jsonl.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

// Length of the whole lines among the first `limit` bytes of `path`.
std::uint64_t WholeLines(const std::filesystem::path& path, std::uint64_t limit) {
  std::error_code ignored;
  if (limit == 0 || !std::filesystem::is_regular_file(path, ignored)) return 0;
  const std::string content = ReadFile(path);
  const std::size_t newline = std::string_view(content).substr(0, limit).rfind('\n');
  return newline == std::string_view::npos ? 0 : newline + 1;
}

// False when `line` is not a row.
bool ParseRow(std::string_view line, MetricRow& row) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return false;
  const auto step = object.find("step");
  const auto wall_s = object.find("wall_s");
  if (step == object.end() || !step->is_number_integer()) return false;
  if (wall_s == object.end() || !(wall_s->is_number() || wall_s->is_null())) return false;
  const auto number = [](const Json& value) {
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  };
  row = MetricRow(step->get<std::int64_t>(), number(*wall_s));
  for (const auto& [name, value] : object.items()) {
    if (name == "step" || name == "wall_s") continue;
    if (!value.is_number() && !value.is_null()) return false;
    row.Set(name, number(value));
  }
  return true;
}

}  // namespace

std::string FormatJsonlRow(const MetricRow& row) {
  Json object;
  object["step"] = row.step();
  object["wall_s"] = row.wall_s();
  for (const auto& [name, value] : row.values()) object[name] = value;
  return object.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

JsonlWriter::JsonlWriter(const std::filesystem::path& path, std::uint64_t resume_offset)
    : file_(path, WholeLines(path, resume_offset)) {}

void JsonlWriter::CutTo(std::uint64_t resume_offset) { file_.CutTo(WholeLines(file_.path(), resume_offset)); }

std::vector<MetricRow> ReadJsonl(const std::filesystem::path& path) {
  const std::string content = ReadFile(path);
  std::vector<MetricRow> rows;
  std::string_view rest = content;
  for (std::size_t number = 1;; ++number) {
    const std::size_t newline = rest.find('\n');
    if (newline == std::string_view::npos) return rows;
    MetricRow row;
    if (!ParseRow(rest.substr(0, newline), row)) Fail("{}:{}: not a row of metrics", path.string(), number);
    rows.push_back(std::move(row));
    rest.remove_prefix(newline + 1);
  }
}

}  // namespace trireme
