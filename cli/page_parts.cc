#include "cli/page_parts.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/report_style.h"
#include "cli/scale.h"
#include "common/durable_file.h"
#include "common/status.h"
#include "common/utf8.h"
#include "common/version.h"

namespace leeway::page {
namespace {

namespace fs = std::filesystem;

std::string Figure(const Chart& chart, const std::string& files) {
  std::string notes;
  for (const std::string& note : ChartNotes(chart)) {
    absl::StrAppend(&notes, Element("p", "note", note), "\n");
  }
  const std::string path = Text(absl::StrCat(files, chart.id));
  return absl::StrCat(
      "<figure class=\"card\" id=\"", Text(chart.id), "\">\n<h3>", Text(chart.title),
      "</h3>\n<div class=\"wide\">\n", ChartSvg(chart, SvgUse::kPage),
      "</div>\n<div class=\"narrow\">\n", ChartSvg(chart, SvgUse::kNarrow), "</div>\n<figcaption>",
      Text(chart.description), "</figcaption>\n", notes, "<p class=\"files\"><a href=\"", path,
      ".svg\">SVG</a> · <a href=\"", path, ".csv\">CSV</a></p>\n</figure>\n");
}

absl::Status MakeFolder(const fs::path& folder) {
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make ", folder.string()));
}

absl::Status WriteText(const fs::path& path, const std::string& text) {
  return WriteFile(path.string(), text, /*sync=*/false);
}

}  // namespace

std::string Text(absl::string_view text) { return EscapeXml(text); }

std::string Element(absl::string_view tag, absl::string_view css, absl::string_view text) {
  return absl::StrCat("<", tag, " class=\"", css, "\">", Text(text), "</", tag, ">");
}

std::string NumberCell(double value) { return Element("td", "number", ShortNumber(value)); }

std::string Section(absl::string_view title, absl::string_view html) {
  if (html.empty()) return "";
  return absl::StrCat("<section>\n<h2>", Text(title), "</h2>\n", html, "</section>\n");
}

std::string Table(const std::vector<std::string>& heads, absl::string_view rows,
                  size_t first_number, absl::string_view css) {
  std::string head;
  for (size_t i = 0; i < heads.size(); ++i) {
    absl::StrAppend(&head, "<th scope=\"col\"", i >= first_number ? " class=\"number\"" : "", ">",
                    Text(heads[i]), "</th>");
  }
  return absl::StrCat("<div class=\"card scroll\"><table class=\"", css, "\">\n<thead><tr>", head,
                      "</tr></thead>\n<tbody>\n", rows, "</tbody>\n</table></div>\n");
}

std::string Figures(const std::vector<Chart>& charts, const std::string& files) {
  std::string html;
  for (const Chart& chart : charts) html += Figure(chart, files);
  return html;
}

std::string Page(absl::string_view title, absl::string_view subtitle, absl::string_view header,
                 absl::string_view sections) {
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"generator\" content=\"leeway ",
      kVersion,
      "\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>",
      Text(title), " · Leeway</title>\n<style>", kReportStyle,
      "</style>\n</head>\n<body>\n<main>\n<header>\n<h1>", Text(title), "</h1>\n<p class=\"soft\">",
      Text(subtitle), "</p>\n", header, "</header>\n", sections, "</main>\n</body>\n</html>\n");
}

absl::StatusOr<Places> PlacesOf(const std::string& page) {
  const fs::path path = page;
  if (!absl::EndsWithIgnoreCase(page, ".html")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out is ", page, "; name the page to write, such as report.html"));
  }
  const std::string name = absl::StrCat(path.stem().string(), "_files");
  return Places{.page = path, .files = path.parent_path() / name, .prefix = name + "/"};
}

FileTexts ChartFiles(const std::vector<Chart>& charts) {
  FileTexts files;
  for (const Chart& chart : charts) {
    files.emplace_back(chart.id + ".svg", ChartSvg(chart, SvgUse::kFile));
    files.emplace_back(chart.id + ".csv", ChartCsv(chart));
  }
  return files;
}

absl::Status WritePage(const Places& places, const FileTexts& files, const std::string& page) {
  LEEWAY_RETURN_IF_ERROR(MakeFolder(places.page.parent_path()));
  LEEWAY_RETURN_IF_ERROR(MakeFolder(places.files));
  for (const auto& [name, text] : files) {
    LEEWAY_RETURN_IF_ERROR(WriteText(places.files / name, text));
  }
  return WriteText(places.page, page);
}

}  // namespace leeway::page
