#include "records/events.h"

#include "absl/strings/ascii.h"

namespace leeway {

std::string EventKindName(EventKind kind) {
  if (kind == v1::Event::KIND_UNSPECIFIED) return "unknown";
  return absl::AsciiStrToLower(v1::Event::Kind_Name(kind));
}

EventKind ParseEventKind(absl::string_view name) {
  EventKind kind = v1::Event::KIND_UNSPECIFIED;
  v1::Event::Kind_Parse(absl::AsciiStrToUpper(name), &kind);
  return kind;
}

bool IsTrouble(EventKind kind) {
  switch (kind) {
    case v1::Event::LEFT:
    case v1::Event::REFUSED:
    case v1::Event::RETRY:
    case v1::Event::REPLACED:
    case v1::Event::QUARANTINED:
    case v1::Event::CLIPPED:
      return true;
    default:
      return false;
  }
}

}  // namespace leeway
