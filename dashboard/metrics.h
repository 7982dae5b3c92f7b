// Metrics: what the server does, for Prometheus. Thread-safe.
#ifndef LEEWAY_DASHBOARD_METRICS_H_
#define LEEWAY_DASHBOARD_METRICS_H_

#include <memory>
#include <string>

#include "proto/federation.pb.h"
#include "records/meter.h"

namespace leeway {

class Metrics : public Meter {
 public:
  static std::unique_ptr<Metrics> Make();
  // The text of /metrics, with where the run stands now.
  virtual std::string Text(const v1::Progress& progress) = 0;
};

}  // namespace leeway

#endif  // LEEWAY_DASHBOARD_METRICS_H_
