#include "dashboard/assets.h"

#include "common/embed.h"

LEEWAY_EMBED(leeway_page_html, LEEWAY_PAGE "/index.html")
LEEWAY_EMBED(leeway_page_script, LEEWAY_PAGE "/app.js")
LEEWAY_EMBED(leeway_page_charts, LEEWAY_PAGE "/charts.js")
LEEWAY_EMBED(leeway_page_style, LEEWAY_PAGE "/style.css")
LEEWAY_EMBED(leeway_page_chart_library, LEEWAY_CHART_LIBRARY)

namespace leeway {
namespace {

absl::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

absl::Span<const Asset> Assets() {
  static const Asset* const kAssets = new Asset[5]{
      {"/", "text/html; charset=utf-8", Between(leeway_page_html, leeway_page_html_end)},
      {"/app.js", "text/javascript; charset=utf-8",
       Between(leeway_page_script, leeway_page_script_end)},
      {"/charts.js", "text/javascript; charset=utf-8",
       Between(leeway_page_charts, leeway_page_charts_end)},
      {"/style.css", "text/css; charset=utf-8", Between(leeway_page_style, leeway_page_style_end)},
      {"/chart.min.js", "text/javascript; charset=utf-8",
       Between(leeway_page_chart_library, leeway_page_chart_library_end)},
  };
  return {kAssets, 5};
}

}  // namespace leeway
