#include "records/epochs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace leeway {
namespace {

constexpr size_t kMostNames = 8;

void AddNames(const std::vector<std::string>& names, const char* one, const char* several,
              std::vector<std::string>& parts) {
  if (names.empty()) return;
  std::vector<std::string> quoted;
  for (const std::string& name : names) {
    if (quoted.size() == kMostNames) break;
    quoted.push_back(absl::StrCat("'", name, "'"));
  }
  std::string text = absl::StrJoin(quoted, ", ");
  if (names.size() > kMostNames) {
    absl::StrAppend(&text, " and ", names.size() - kMostNames, " more");
  }
  parts.push_back(absl::StrCat(text, " ", names.size() == 1 ? one : several));
}

// What rounds of this kind are for, in an answer; null if they are no part of it.
const char* PartName(v1::RoundKind kind) {
  switch (kind) {
    case v1::OPTIMUM_ROUND:
      return "w*";
    case v1::CONSTANTS_ROUND:
      return "the constants";
    case v1::PROBE_ROUND:
      return "the drift";
    case v1::FIXED_POINT_ROUND:
      return "the fixed points";
    case v1::RELEASE_ROUND:
      return "the release test";
    case v1::TRAIN_ROUND:
      return "training";
    default:
      return nullptr;
  }
}

}  // namespace

absl::Status Attendance::Begin(const v1::Epoch& epoch) {
  const auto bad = [&](const auto&... what) {
    return absl::DataLossError(absl::StrCat("epoch ", epoch.number(), ": ", what...));
  };
  if (epoch.number() != epoch_.number() + 1) return bad("comes after epoch ", epoch_.number());
  if (epoch.first_round() < epoch_.first_round()) {
    return bad("begins with round ", epoch.first_round(), ", the one before it with round ",
               epoch_.first_round());
  }
  if (epoch.roster() < present_.size() || epoch.roster() > roster_.size()) {
    return bad("has ", epoch.roster(), " of ", roster_.size(), " clients on its roster, after ",
               present_.size());
  }
  for (const uint32_t index : epoch.returned()) {
    if (index >= present_.size() || present_[index]) return bad("client ", index, " was not away");
    present_[index] = true;
  }
  for (const uint32_t index : epoch.left()) {
    if (!present(index)) return bad("client ", index, " was not present");
    present_[index] = false;
  }
  present_.resize(epoch.roster(), true);
  epoch_ = epoch;
  if (const size_t found = Clients().size(); found != epoch.population()) {
    return bad("has ", found, " clients, but says ", epoch.population());
  }
  return absl::OkStatus();
}

std::vector<uint32_t> Attendance::Clients() const {
  std::vector<uint32_t> clients;
  for (uint32_t i = 0; i < present_.size(); ++i) {
    if (present_[i] && roster_[i].examples > 0) clients.push_back(i);
  }
  return clients;
}

std::vector<uint32_t> Attendance::Away() const {
  std::vector<uint32_t> away;
  for (uint32_t i = 0; i < present_.size(); ++i) {
    if (!present_[i]) away.push_back(i);
  }
  return away;
}

std::vector<EpochNames> NamesOf(const std::vector<v1::Epoch>& epochs,
                                const std::vector<StoredClient>& roster) {
  std::vector<EpochNames> all;
  size_t known = 0;
  const auto name = [&roster](uint32_t index) {
    return index < roster.size() ? roster[index].id : absl::StrCat("client ", index);
  };
  for (const v1::Epoch& epoch : epochs) {
    EpochNames& names = all.emplace_back();
    names.number = epoch.number();
    names.first_round = epoch.first_round();
    names.population = epoch.population();
    for (; known < epoch.roster(); ++known) {
      names.entered.push_back(name(static_cast<uint32_t>(known)));
    }
    for (const uint32_t index : epoch.returned()) names.returned.push_back(name(index));
    for (const uint32_t index : epoch.left()) names.left.push_back(name(index));
  }
  return all;
}

std::string EpochText(const EpochNames& epoch) {
  std::vector<std::string> parts;
  AddNames(epoch.entered, "enters", "enter", parts);
  AddNames(epoch.returned, "returns", "return", parts);
  AddNames(epoch.left, "leaves", "leave", parts);
  return absl::StrCat(
      "epoch ", epoch.number, " from round ", epoch.first_round, " on, ", epoch.population,
      epoch.population == 1 ? " client: " : " clients: ", absl::StrJoin(parts, "; "));
}

std::string MixedEpochs(const std::vector<v1::RoundRecord>& records) {
  struct Part {
    v1::RoundKind kind;
    const v1::RoundRecord* first;
    const v1::RoundRecord* last;
  };
  std::vector<Part> parts;
  bool mixed = false;
  for (const v1::RoundRecord& record : records) {
    if (PartName(record.kind()) == nullptr) continue;
    const auto same = [&](const Part& part) { return part.kind == record.kind(); };
    const auto found = std::find_if(parts.begin(), parts.end(), same);
    if (found == parts.end()) {
      parts.push_back({record.kind(), &record, &record});
    } else {
      found->last = &record;
    }
    mixed |= record.epoch() != parts.front().first->epoch();
  }
  if (!mixed || parts.size() < 2) return "";
  std::vector<std::string> texts;
  for (const Part& part : parts) {
    const bool one = part.first->epoch() == part.last->epoch();
    texts.push_back(absl::StrCat(
        PartName(part.kind), " about ",
        one ? absl::StrCat("the ", part.last->population(), " clients of epoch ",
                           part.last->epoch())
            : absl::StrCat("those of epochs ", part.first->epoch(), " to ", part.last->epoch(),
                           " (", part.last->population(), " at its end)")));
  }
  return absl::StrCat("clients came or left between the measurements: ",
                      absl::StrJoin(texts, ", "));
}

}  // namespace leeway
