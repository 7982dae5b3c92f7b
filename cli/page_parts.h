// The parts that pages of charts and tables are made of (report, compare), and where their files
// go. Every text that is not HTML goes through Text. Functions of values, but for WritePage.
#ifndef LEEWAY_CLI_PAGE_PARTS_H_
#define LEEWAY_CLI_PAGE_PARTS_H_

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/chart.h"

namespace leeway::page {

std::string Text(absl::string_view text);
std::string Element(absl::string_view tag, absl::string_view css, absl::string_view text);
std::string NumberCell(double value);
// Empty if there is nothing in it.
std::string Section(absl::string_view title, absl::string_view html);
// Columns from first_number on end at the right.
std::string Table(const std::vector<std::string>& heads, absl::string_view rows,
                  size_t first_number, absl::string_view css = "");
// The charts, each with links to its files; `files` is the path from the page to them.
std::string Figures(const std::vector<Chart>& charts, const std::string& files);
// A page that needs nothing else.
std::string Page(absl::string_view title, absl::string_view subtitle, absl::string_view header,
                 absl::string_view sections);

// Where a page and its files go.
struct Places {
  std::filesystem::path page;
  std::filesystem::path files;  // folder of charts and CSV files
  std::string prefix;           // from the page to them, with a slash; empty if beside it
};

// For a page NAME.html the folder NAME_files beside it. InvalidArgument if it is not called so.
absl::StatusOr<Places> PlacesOf(const std::string& page);

using FileTexts = std::vector<std::pair<std::string, std::string>>;  // name and contents
// Every chart as SVG and as CSV.
FileTexts ChartFiles(const std::vector<Chart>& charts);
// Makes the folders, then writes the files and last the page.
absl::Status WritePage(const Places& places, const FileTexts& files, const std::string& page);

}  // namespace leeway::page

#endif  // LEEWAY_CLI_PAGE_PARTS_H_
