// Holdings: what a server has allocated for its clients' reports, by count and size.
// Thread-safe.
#ifndef LEEWAY_RECORDS_HOLDINGS_H_
#define LEEWAY_RECORDS_HOLDINGS_H_

#include "common/account.h"

namespace leeway {

struct Holdings {
  Account streams;        // on which reports come; their own size is not counted
  Account staging;        // buffers for large reports, in use or kept for the next
  Account small_reports;  // buffers for reports of one message, one a stream
  Account waiting;        // large reports that wait for a buffer; they have no bytes here
};

}  // namespace leeway

#endif  // LEEWAY_RECORDS_HOLDINGS_H_
