#include "client/import/partition.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/import/assignment.h"
#include "client/import/byte_stream.h"
#include "client/import/progress.h"
#include "common/rng.h"
#include "common/status.h"

namespace leeway {
namespace {

// All samples of one part of a federation, mapped, numbered client after client.
class Pool {
 public:
  static absl::StatusOr<Pool> Map(const std::string& root, const std::vector<ClientEntry>& clients,
                                  Part part) {
    Pool pool;
    for (const ClientEntry& client : clients) {
      LEEWAY_ASSIGN_OR_RETURN(std::optional<MappedPart> mapped, MapPart(root, client, part));
      pool.sizes_.push_back(mapped.has_value() ? mapped->samples() : 0);
      pool.begins_.push_back(pool.samples_);
      pool.samples_ += pool.sizes_.back();
      pool.parts_.push_back(std::move(mapped));
    }
    if (pool.samples_ > std::numeric_limits<uint32_t>::max()) {
      return absl::OutOfRangeError(absl::StrCat(root, ": has more than 2^32 samples"));
    }
    return pool;
  }

  uint64_t samples() const { return samples_; }
  // Samples by client.
  const std::vector<uint64_t>& sizes() const { return sizes_; }
  uint32_t begin(size_t client) const { return static_cast<uint32_t>(begins_[client]); }

  // One label per sample; empty when the samples have none.
  std::vector<int64_t> Labels() const {
    std::vector<int64_t> labels;
    for (const std::optional<MappedPart>& part : parts_) {
      if (!part.has_value()) continue;
      const Rows y = RowsOf(part->y);
      if (!y.type.integer() || !y.type.shape.empty()) return {};
      const std::vector<int64_t> some = IntegersOf(y);
      labels.insert(labels.end(), some.begin(), some.end());
    }
    return labels;
  }

  absl::Status Copy(const std::vector<uint32_t>& samples, const std::string& client, Part part,
                    FederationWriter* writer) const {
    return Visit(samples,
                 [&](const Rows& x, const Rows& y) { return writer->Append(client, part, x, y); });
  }

  // Calls use(x, y) with copies of these samples, if there are any.
  template <typename Use>
  absl::Status Visit(const std::vector<uint32_t>& samples, const Use& use) const {
    if (samples.empty()) return absl::OkStatus();
    std::vector<std::byte> x;
    std::vector<std::byte> y;
    RowType x_type;
    RowType y_type;
    for (uint32_t sample : samples) {
      const auto owner = std::upper_bound(begins_.begin(), begins_.end(), sample) - 1;
      const auto index = static_cast<size_t>(owner - begins_.begin());
      const MappedPart& from = *parts_[index];
      x_type = RowTypeOf(from.x);
      y_type = RowTypeOf(from.y);
      const uint64_t row = sample - *owner;
      const std::byte* x_row = from.x.data() + row * x_type.bytes();
      const std::byte* y_row = from.y.data() + row * y_type.bytes();
      x.insert(x.end(), x_row, x_row + x_type.bytes());
      y.insert(y.end(), y_row, y_row + y_type.bytes());
    }
    return use({x_type, samples.size(), x}, {y_type, samples.size(), y});
  }

  // All samples, some at a time, to the evaluator.
  absl::Status CopyToEvaluator(FederationWriter* writer) const {
    constexpr uint32_t kAtOnce = 4096;
    for (uint64_t first = 0; first < samples_; first += kAtOnce) {
      std::vector<uint32_t> some(std::min<uint64_t>(kAtOnce, samples_ - first));
      std::iota(some.begin(), some.end(), static_cast<uint32_t>(first));
      LEEWAY_RETURN_IF_ERROR(
          Visit(some, [&](const Rows& x, const Rows& y) { return writer->AppendCentral(x, y); }));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::optional<MappedPart>> parts_;
  std::vector<uint64_t> sizes_;
  std::vector<uint64_t> begins_;
  uint64_t samples_ = 0;
};

struct Plan {
  std::vector<std::string> names;
  Assignment train;
  Assignment test;
  uint64_t moved = 0;  // to clients that had got too few
};

std::vector<std::string> NewNames(uint64_t clients) {
  const auto width = static_cast<int>(absl::StrCat(clients - 1).size());
  std::vector<std::string> names;
  for (uint64_t i = 0; i < clients; ++i) {
    names.push_back(absl::StrFormat("client_%0*d", width, i));
  }
  return names;
}

// Client group[c] gets the samples of source client c, whole.
Assignment Gather(const Pool& pool, const std::vector<uint32_t>& group, uint64_t groups) {
  Assignment assignment(groups);
  for (size_t client = 0; client < group.size(); ++client) {
    std::vector<uint32_t>& target = assignment[group[client]];
    const size_t before = target.size();
    target.resize(before + pool.sizes()[client]);
    std::iota(target.begin() + static_cast<std::ptrdiff_t>(before), target.end(),
              pool.begin(client));
  }
  return assignment;
}

Plan NaturalPlan(const Pool& train, const Pool& test, const std::vector<ClientEntry>& sources,
                 uint64_t clients, Rng& rng) {
  std::vector<uint32_t> group(sources.size());
  std::iota(group.begin(), group.end(), 0U);
  Plan plan;
  if (clients == 0) {
    for (const ClientEntry& source : sources) plan.names.push_back(source.name);
  } else {
    rng.Shuffle(group);
    for (uint32_t& place : group) place = static_cast<uint32_t>(place % clients);
    plan.names = NewNames(clients);
  }
  plan.train = Gather(train, group, plan.names.size());
  plan.test = Gather(test, group, plan.names.size());
  return plan;
}

Plan ShufflePlan(const Pool& train, const Pool& test, const std::vector<ClientEntry>& sources,
                 Rng& train_rng, Rng& test_rng) {
  Plan plan;
  for (const ClientEntry& source : sources) plan.names.push_back(source.name);
  plan.train = AssignSizes(train.sizes(), train_rng);
  plan.test = AssignSizes(test.sizes(), test_rng);
  return plan;
}

absl::StatusOr<Plan> MakePlan(const PartitionOptions& options, const Pool& train, const Pool& test,
                              const std::vector<ClientEntry>& sources) {
  Rng rng(options.seed, 0, 0, Purpose::kPartition);
  Rng test_rng(options.seed, 1, 0, Purpose::kPartition);
  const uint64_t clients = options.clients;
  if (options.by == "natural") return NaturalPlan(train, test, sources, clients, rng);
  if (options.by == "shuffle") return ShufflePlan(train, test, sources, rng, test_rng);
  Plan plan;
  plan.names = NewNames(clients);
  const std::vector<int64_t> labels = train.Labels();
  if (options.by == "iid") {
    plan.train = AssignSizes(EqualSizes(train.samples(), clients), rng);
  } else if (options.by == "size") {
    plan.train = AssignSizes(LogNormalSizes(train.samples(), clients, options.sigma, rng), rng);
  } else if (labels.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.source, ": --by ", options.by,
        " needs one whole-number label per sample; use --by iid, size, shuffle or natural"));
  } else if (options.by == "dirichlet") {
    plan.train = AssignDirichlet(labels, clients, options.alpha, rng);
  } else {
    plan.train = AssignShards(labels, clients, options.shards_per_client, rng);
  }
  plan.moved = FillUp(&plan.train, std::max<uint64_t>(1, options.writer.min_samples));
  plan.test = FollowShares(plan.train, labels, test.Labels(), test.samples(), test_rng);
  return plan;
}

absl::Status Check(const PartitionOptions& options, uint64_t sources, uint64_t samples) {
  const std::string& by = options.by;
  const std::vector<std::string> rules = {"iid",  "dirichlet", "shards",
                                          "size", "natural",   "shuffle"};
  if (std::find(rules.begin(), rules.end(), by) == rules.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--by ", by, ": expected iid, dirichlet, shards, size, natural or shuffle"));
  }
  if (by == "shuffle" && options.clients != 0 && options.clients != sources) {
    return absl::InvalidArgumentError("--by shuffle keeps the clients: leave --clients out");
  }
  const bool optional = by == "shuffle" || by == "natural";
  if (options.clients == 0 && !optional) return absl::InvalidArgumentError("--clients is missing");
  const uint64_t most = by == "natural" ? sources : samples;
  const uint64_t asked =
      std::max<uint64_t>(options.clients, 1) * (by == "shards" ? options.shards_per_client : 1);
  if (asked == 0 || asked > most || options.clients > most) {
    return absl::InvalidArgumentError(absl::StrCat("--clients ", options.clients, ": ",
                                                   options.source, " has only ", sources,
                                                   " clients and ", samples, " training samples"));
  }
  if (!(options.alpha > 0) || !(options.sigma >= 0)) {
    return absl::InvalidArgumentError("--alpha must be above 0, --sigma not below");
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> Describe(const PartitionOptions& options, uint64_t moved) {
  LEEWAY_ASSIGN_OR_RETURN(std::optional<Json> source, ReadDescription(options.source));
  Json json = {{"kind", "partition"}, {"source", options.source}};
  json["options"] = {{"by", options.by}, {"clients", options.clients}, {"seed", options.seed}};
  if (options.by == "dirichlet") json["options"]["alpha"] = options.alpha;
  if (options.by == "shards") json["options"]["shards_per_client"] = options.shards_per_client;
  if (options.by == "size") json["options"]["sigma"] = options.sigma;
  if (options.central_test) json["options"]["central_test"] = true;
  json["samples_moved_to_clients_with_too_few"] = moved;
  if (!source.has_value()) return json;
  for (const char* key : {"kind", "source", "options", "from"}) {
    if (source->contains(key)) json["from"][key] = (*source)[key];
  }
  for (const char* key : {"vocabulary", "features", "one_hot_levels", "scaling", "label_levels"}) {
    if (source->contains(key)) json[key] = (*source)[key];
  }
  return json;
}

}  // namespace

absl::StatusOr<Json> PartitionFederation(const PartitionOptions& options) {
  LEEWAY_ASSIGN_OR_RETURN(std::vector<ClientEntry> sources, ListClients(options.source));
  LEEWAY_ASSIGN_OR_RETURN(Pool train, Pool::Map(options.source, sources, Part::kTrain));
  LEEWAY_ASSIGN_OR_RETURN(Pool test, Pool::Map(options.source, sources, Part::kTest));
  LEEWAY_RETURN_IF_ERROR(Check(options, sources.size(), train.samples()));
  LEEWAY_ASSIGN_OR_RETURN(const Plan plan, MakePlan(options, train, test, sources));
  LEEWAY_ASSIGN_OR_RETURN(std::unique_ptr<FederationWriter> writer,
                          FederationWriter::Create(options.writer));
  Progress progress("writing", "clients", plan.names.size());
  for (size_t i = 0; i < plan.names.size(); ++i) {
    LEEWAY_RETURN_IF_ERROR(train.Copy(plan.train[i], plan.names[i], Part::kTrain, writer.get()));
    if (!options.central_test) {
      LEEWAY_RETURN_IF_ERROR(test.Copy(plan.test[i], plan.names[i], Part::kTest, writer.get()));
    }
    progress.Step();
  }
  if (options.central_test) {
    if (test.samples() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.source, ": has no test samples; leave --central-test out"));
    }
    LEEWAY_RETURN_IF_ERROR(test.CopyToEvaluator(writer.get()));
  }
  // A central test set that the source has stays one.
  const ClientEntry evaluator{kEvaluator, kEvaluator, 0, 0};
  if (std::filesystem::exists(absl::StrCat(options.source, "/", kEvaluator, "/test_x.npy")) &&
      std::none_of(sources.begin(), sources.end(),
                   [](const ClientEntry& c) { return c.directory == kEvaluator; })) {
    LEEWAY_ASSIGN_OR_RETURN(Pool central, Pool::Map(options.source, {evaluator}, Part::kTest));
    LEEWAY_RETURN_IF_ERROR(central.CopyToEvaluator(writer.get()));
  }
  const std::string vocabulary = options.source + "/vocabulary.txt";
  if (std::filesystem::exists(vocabulary)) {
    LEEWAY_ASSIGN_OR_RETURN(std::string text, ReadAll(vocabulary));
    LEEWAY_RETURN_IF_ERROR(writer->WriteFile("vocabulary.txt", text));
  }
  LEEWAY_ASSIGN_OR_RETURN(Json description, Describe(options, plan.moved));
  return writer->Finish(std::move(description));
}

}  // namespace leeway
