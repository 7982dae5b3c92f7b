#include "client/objective.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/convex_models.h"
#include "client/networks/network_objective.h"
#include "common/model_layout.h"
#include "common/status.h"

namespace leeway {
namespace {

absl::StatusOr<AnyObjective> Make(const v1::Model& model, const Dataset& data) {
  // The layout's checks of model and schema come first: the server made the
  // same ones, and the constructors rely on them.
  LEEWAY_RETURN_IF_ERROR(LayoutOf(model, data.Schema()).status());
  switch (model.kind_case()) {
    case v1::Model::kLinearRegression:
      return MakeLinearRegression(model.linear_regression(), data);
    case v1::Model::kSoftmaxRegression:
      return MakeSoftmaxRegression(model.softmax_regression(), data);
    case v1::Model::kMlp:
    case v1::Model::kCnn:
    case v1::Model::kLstm:
      return MakeNetworkObjective(model, data);
    case v1::Model::kFile:
      return absl::InvalidArgumentError(
          absl::StrCat("the run's model is a file, ", model.file(),
                       ": only a program of your own can compute it; start leeway-client with "
                       "--worker (docs/worker.md) or join from Python (docs/python.md)"));
    case v1::Model::KIND_NOT_SET:
      break;
  }
  return absl::InternalError("a model with a layout but no objective");
}

}  // namespace

absl::StatusOr<AnyObjective> MakeObjective(const v1::Model& model, const Dataset& data) {
  absl::StatusOr<AnyObjective> objective = Make(model, data);
  if (!objective.ok()) {
    return Annotate(objective.status(), absl::StrCat("client \"", data.id, "\""));
  }
  return objective;
}

}  // namespace leeway
