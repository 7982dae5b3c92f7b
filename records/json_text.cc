#include "records/json_text.h"

#include <nlohmann/json.hpp>

namespace leeway {
namespace {

std::string Dump(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string JsonText(const nlohmann::ordered_json& json) { return Dump(json, 2); }
std::string JsonLine(const nlohmann::ordered_json& json) { return Dump(json, -1); }

}  // namespace leeway
