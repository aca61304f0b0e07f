#include "trireme/metrics/page.h"

#include <fmt/format.h>

#include "trireme/metrics/markup.h"

namespace trireme {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1f2933; --muted: #52606d; --page: #f5f7fa; --card: #ffffff;
        --line: #e4e7eb; --good: #00694d; --good-back: #d9f2e8; --open: #8a4200; --open-back: #fdebd8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --muted: #9aa5b1; --page: #12181f; --card: #1c252e; --line: #323f4b;
          --good: #7fe0bd; --good-back: #10382c; --open: #ffc78a; --open-back: #44290d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
       font: 15px/1.5 system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 8px; }
h1 small { font-size: 16px; font-weight: 400; color: var(--muted); }
h2 { font-size: 17px; margin: 32px 0 10px; }
.verdict { display: inline-block; padding: 3px 12px; border-radius: 99px; font-weight: 600; margin: 0 0 18px;
           color: var(--open); background: var(--open-back); }
.verdict.good { color: var(--good); background: var(--good-back); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0 0 16px; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.tile { padding: 10px 14px; }
.tile b { display: block; font-size: 21px; line-height: 1.3; }
.tile span { color: var(--muted); font-size: 13px; }
.card { overflow: hidden; }
.card svg { display: block; width: 100%; height: auto; background: #ffffff; }
.strip { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: 8px; }
.strip figure { margin: 0; }
.strip img { display: block; width: 100%; height: auto; border: 1px solid var(--line); border-radius: 6px; }
.strip figcaption, .note { color: var(--muted); font-size: 13px; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 12px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 6px 14px; border-top: 1px solid var(--line); vertical-align: top; }
tr:first-child > * { border-top: 0; }
th { font-weight: 400; color: var(--muted); width: 34%; }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
pre { margin: 0; padding: 14px; overflow-x: auto; font: 13px/1.45 ui-monospace, 'DejaVu Sans Mono', monospace; }
)";

}  // namespace

std::string HtmlPage(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</html>\n",
      title, kStyle, body);
}

std::string HtmlTile(std::string_view value, std::string_view caption) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", EscapeMarkup(value),
                     EscapeMarkup(caption));
}

}  // namespace trireme
