#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/import/client_name.h"
#include "client/import/hdf5_file.h"
#include "client/import/importers.h"
#include "client/import/progress.h"
#include "common/status.h"

namespace leeway {
namespace {

std::vector<std::string> Candidates(const std::string& chosen, std::vector<std::string> usual) {
  return chosen.empty() ? std::move(usual) : std::vector<std::string>{chosen};
}

// Which features to read, and how: decided by the first client of the training file.
struct Plan {
  std::string feature;
  std::string label;  // empty for text
  Hdf5File::Kind kind = Hdf5File::Kind::kReal;
};

absl::StatusOr<Plan> MakePlan(const TffOptions& options, const Hdf5File& file) {
  LEEWAY_ASSIGN_OR_RETURN(std::vector<std::string> clients, file.Clients());
  if (clients.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": /examples holds no client"));
  }
  Plan plan;
  LEEWAY_ASSIGN_OR_RETURN(
      plan.feature,
      file.FindFeature(clients[0],
                       Candidates(options.feature, {"pixels", "image", "snippets", "tokens"})));
  LEEWAY_ASSIGN_OR_RETURN(plan.kind, file.FeatureKind(clients[0], plan.feature));
  if (plan.kind == Hdf5File::Kind::kText) return plan;
  LEEWAY_ASSIGN_OR_RETURN(plan.label,
                          file.FindFeature(clients[0], Candidates(options.label, {"label", "y"})));
  return plan;
}

absl::Status CopyNumbers(const Hdf5File& file, const Plan& plan, const std::string& client,
                         Part part, FederationWriter* writer) {
  LEEWAY_ASSIGN_OR_RETURN(Hdf5File::Numbers x, file.ReadReals(client, plan.feature));
  LEEWAY_ASSIGN_OR_RETURN(Hdf5File::Numbers y, file.ReadIntegers(client, plan.label));
  if (y.integers.size() != y.shape[0]) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": client ", Printable(client),
                                                   ": ", plan.label,
                                                   " has more than one value per sample"));
  }
  if (x.kind == Hdf5File::Kind::kInteger) {
    for (float& value : x.reals) value /= 255.0F;
  }
  const std::vector<uint64_t> row_shape(x.shape.begin() + 1, x.shape.end());
  return Annotate(writer->Append(client, part, RowsOf(x.reals, x.shape[0], row_shape),
                                 RowsOf(y.integers, y.shape[0], {})),
                  file.path());
}

// Reads one file; returns the number of its texts.
absl::StatusOr<uint64_t> ReadPart(const Hdf5File& file, const Plan& plan, Part part,
                                  FederationWriter* writer, SequenceBuilder* builder) {
  LEEWAY_ASSIGN_OR_RETURN(std::vector<std::string> clients, file.Clients());
  Progress progress(absl::StrCat("reading ", PartName(part)), "clients", clients.size());
  uint64_t texts = 0;
  for (const std::string& client : clients) {
    if (plan.kind == Hdf5File::Kind::kText) {
      LEEWAY_ASSIGN_OR_RETURN(std::vector<std::string> strings,
                              file.ReadStrings(client, plan.feature));
      texts += strings.size();
      for (const std::string& text : strings) builder->Add(client, part, builder->Tokenize(text));
    } else {
      LEEWAY_RETURN_IF_ERROR(CopyNumbers(file, plan, client, part, writer));
    }
    progress.Step();
  }
  return texts;
}

}  // namespace

absl::StatusOr<Json> ImportTff(const TffOptions& options) {
  LEEWAY_ASSIGN_OR_RETURN(Hdf5File train, Hdf5File::Open(options.source));
  LEEWAY_ASSIGN_OR_RETURN(const Plan plan, MakePlan(options, train));
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<FederationWriter> writer,
                          FederationWriter::Create(options.writer));
  const bool text = plan.kind == Hdf5File::Kind::kText;
  SequenceOptions sequences = options.sequences;
  sequences.characters = plan.feature != "tokens";
  SequenceBuilder builder(sequences);
  Json description = {{"kind", "tff"}, {"source", options.source}};
  Json& chosen = description["options"];
  chosen = {{"test", options.test}, {"feature", plan.feature}};
  LEEWAY_ASSIGN_OR_RETURN(const uint64_t train_texts,
                          ReadPart(train, plan, Part::kTrain, writer.get(), &builder));
  uint64_t test_texts = 0;
  if (!options.test.empty()) {
    LEEWAY_ASSIGN_OR_RETURN(Hdf5File test, Hdf5File::Open(options.test));
    LEEWAY_ASSIGN_OR_RETURN(test_texts, ReadPart(test, plan, Part::kTest, writer.get(), &builder));
  }
  if (text) {
    chosen.update(sequences.ToJson());
    description["texts"] = {{"train", train_texts}, {"test", test_texts}};
    LEEWAY_RETURN_IF_ERROR(builder.Write(writer.get(), &description));
  } else {
    chosen["label"] = plan.label;
    chosen["scale"] = plan.kind == Hdf5File::Kind::kInteger ? "divided by 255" : "as in the source";
  }
  return writer->Finish(std::move(description));
}

}  // namespace leeway
