// Metrics: what the server does, for Prometheus. Thread-safe.
#ifndef LEEWAY_DASHBOARD_METRICS_H_
#define LEEWAY_DASHBOARD_METRICS_H_

#include <memory>
#include <string>

#include "proto/federation.pb.h"
#include "records/holdings.h"
#include "records/meter.h"

namespace leeway {

class Metrics : public Meter {
 public:
  static std::unique_ptr<Metrics> Make();
  // The text of /metrics, with where the run stands now and what it holds.
  virtual std::string Text(const v1::Progress& progress, const Holdings& reports,
                           const Account& models) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_DASHBOARD_METRICS_H_
