// Kinds of events: their names, and which of them are trouble. Functions of values.
#ifndef LEEWAY_RECORDS_EVENTS_H_
#define LEEWAY_RECORDS_EVENTS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "proto/record.pb.h"

namespace leeway {

using EventKind = v1::Event::Kind;

// "joined", "refused", ...: as stored and shown.
std::string EventKindName(EventKind kind);
// KIND_UNSPECIFIED for a name that this version does not know.
EventKind ParseEventKind(absl::string_view name);

// Somebody should look at it: something did not go as planned, though the run may go on.
bool IsTrouble(EventKind kind);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_EVENTS_H_
