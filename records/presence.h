// Who takes part in a run at this moment, as its server tells the dashboard.
#ifndef LEEWAY_RECORDS_PRESENCE_H_
#define LEEWAY_RECORDS_PRESENCE_H_

#include <cstdint>
#include <string>

namespace leeway {

// A client as the server sees it now.
struct ClientPresence {
  std::string id;
  uint64_t examples = 0;
  bool connected = false;
  bool present = true;  // in this epoch; false: it has left, or waits to enter
};

}  // namespace leeway

#endif  // LEEWAY_RECORDS_PRESENCE_H_
