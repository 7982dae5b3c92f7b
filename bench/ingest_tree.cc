// One round through a tree of ingest nodes, with the real Roster, Round, PlainAggregator and
// Tally: clients report to leaves, leaves to regions, regions to the root, each as one sum. The
// same clients then report to a single server. Ends with an error unless both have the same
// integers. Prints what a report costs at each level: the constants of docs/scale.md.
//
//   ingest_tree [clients [dimension [regions [leaves of a region]]]]     (default 20000 30 4 8)
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/digest.h"
#include "common/rng.h"
#include "common/sums.h"
#include "common/tally.h"
#include "server/plain_aggregator.h"
#include "server/roster.h"
#include "server/round.h"
#include "tests/named_report.h"

namespace leeway {
namespace {

constexpr uint32_t kGroups = 4;
const absl::Time kNow = absl::FromUnixSeconds(1000);

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "ingest_tree: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

uint64_t Examples(uint32_t client) { return 1 + client % 7; }
std::string Name(uint32_t client) { return absl::StrFormat("c%08d", client); }

// Of this process: what others do on the machine is not counted.
double CpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double MemoryMb() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// What nodes of one level have done.
struct Level {
  const char* name = "";
  uint64_t nodes = 0;
  uint64_t reports = 0;
  uint64_t bytes = 0;  // received
  double seconds = 0;  // admitting and adding them
};

// The clients from `begin` on, and the sum of their reports.
struct Sum {
  uint32_t begin = 0;
  uint32_t end = 0;
  Tally tally;
};

class Tree {
 public:
  Tree(uint32_t clients, size_t dimension) : clients_(clients) {
    uint64_t weight = 0;
    for (uint32_t c = 0; c < clients; ++c) weight += Examples(c);
    v1::Task task;
    task.set_groups(kGroups);
    Ask(kDisplacement, task).set_largest(16);
    Ask(kLoss, task);
    SetUnits(weight, task);  // the whole round's, at every node
    spec_.sums = TaskSums(task, dimension);
    spec_.base_sha256 = "base";
  }

  // The clients' own reports, one after the other, to one node.
  Sum Gather(uint32_t begin, uint32_t end, Level& level) {
    Node node(*this, begin, end);
    const uint32_t count = end - begin;
    // A prime, so that each client comes once, in an order that has nothing to do with names.
    const uint64_t stride = count % 7919 == 0 ? 1 : 7919;
    for (uint32_t i = 0; i < count; ++i) {
      v1::ReportHeader header;
      const std::string payload =
          Report(begin + static_cast<uint32_t>((i * stride + 13) % count), header);
      node.Add(header, payload, level);
    }
    return node.Close(level);
  }

  // The sums of nodes one level down, to one node.
  Sum Merge(const std::vector<Sum>& sums, Level& level) {
    Node node(*this, sums.front().begin, sums.back().end);
    for (const Sum& sum : sums) {
      v1::ReportHeader header;
      for (uint32_t c = sum.begin; c < sum.end; ++c) header.add_clients(Name(c));
      header.set_encoding(v1::TALLY);
      const std::string payload(reinterpret_cast<const char*>(sum.tally.flat().data()),
                                sum.tally.flat().size() * sizeof(int64_t));
      node.Add(header, payload, level);
    }
    return node.Close(level);
  }

  uint32_t clients() const { return clients_; }

 private:
  class Node {
   public:
    Node(const Tree& tree, uint32_t begin, uint32_t end)
        : begin_(begin), end_(end), roster_(end - begin) {
      std::vector<Enrolment> clients;
      RoundSpec spec;
      for (uint32_t c = begin; c < end; ++c) {
        clients.push_back({Name(c), Examples(c)});
        spec.cohort.push_back(c - begin);
        spec.groups.push_back(c % kGroups);
      }
      Check(roster_.Join(1, 1, std::move(clients), kNow));
      roster_.BeginEpoch(roster_.NextEpoch(kNow, absl::InfiniteDuration(), 0));
      spec.round = 1;
      spec.group_count = kGroups;
      spec.by_examples = true;
      spec.minimum = end - begin;
      round_ = std::make_unique<Round>(
          std::move(spec), &roster_,
          std::make_unique<PlainAggregator>(tree.spec_, Tally(), nullptr, nullptr));
    }

    void Add(v1::ReportHeader& header, const std::string& payload, Level& level) {
      header.set_round(1);
      header.set_attempt(1);
      header.set_base_sha256("base");
      header.set_payload_size(payload.size());
      header.set_payload_hash(Xxh3(payload));
      const std::string wire = header.SerializeAsString();
      const double began = CpuSeconds();
      v1::ReportHeader read;
      read.ParseFromString(wire);
      const ReportKey key = {1, 1, {read.clients().begin(), read.clients().end()}, Xxh3(wire)};
      absl::StatusOr<Round::Admission> admission = round_->BeginReport(key, kNow);
      Check(admission.status());
      Check(round_->aggregator().Admit(read));
      Check(round_->aggregator().Add(
          read, {reinterpret_cast<const std::byte*>(payload.data()), payload.size()},
          admission->shares));
      round_->EndReport(key, true);
      level.seconds += CpuSeconds() - began;
      level.bytes += wire.size() + payload.size();
      ++level.reports;
    }

    Sum Close(Level& level) {
      ++level.nodes;
      if (round_->StateAt(kNow) != Round::State::kComplete) {
        Check(absl::InternalError("a node's round is not complete"));
      }
      Round::Result result = round_->Close();
      if (result.accepted.size() != end_ - begin_) {
        Check(absl::InternalError("a node has not counted every client"));
      }
      return {begin_, end_, std::move(result.tally)};
    }

   private:
    const uint32_t begin_;
    const uint32_t end_;
    Roster roster_;
    std::unique_ptr<Round> round_;
  };

  // One client's report: numbers that depend on its name alone.
  std::string Report(uint32_t client, v1::ReportHeader& header) const {
    Rng rng(17, 1, client, Purpose::kTest);
    NamedReport<double> report(spec_.sums, Examples(client));
    Vector<double> displacement(static_cast<Eigen::Index>(spec_.sums.shape().dimension));
    for (double& x : displacement) x = rng.Uniform() - 0.5;
    report.Set(kDisplacement, displacement).Set(kLoss, rng.Uniform()).Derive();
    header.add_clients(Name(client));
    header.set_group(client % kGroups);
    return report.Write(header);
  }

  const uint32_t clients_;
  PlainAggregator::Spec spec_;
};

// Cuts [begin, end) into parts.
std::vector<std::pair<uint32_t, uint32_t>> Parts(uint32_t begin, uint32_t end, uint32_t parts) {
  std::vector<std::pair<uint32_t, uint32_t>> all;
  const uint64_t count = end - begin;
  for (uint64_t i = 0; i < parts; ++i) {
    all.emplace_back(begin + static_cast<uint32_t>(count * i / parts),
                     begin + static_cast<uint32_t>(count * (i + 1) / parts));
  }
  return all;
}

void Print(const Level& level) {
  absl::PrintF("%-8s %7d nodes %9d reports  %9.2f us and %11.0f bytes a report\n", level.name,
               level.nodes, level.reports, 1e6 * level.seconds / static_cast<double>(level.reports),
               static_cast<double>(level.bytes) / static_cast<double>(level.reports));
}

int Main(uint32_t clients, size_t dimension, uint32_t regions, uint32_t leaves) {
  if (clients < regions * leaves || regions == 0 || leaves == 0 || dimension == 0) {
    std::fprintf(stderr, "ingest_tree: every leaf needs a client, and a model a parameter\n");
    return 2;
  }
  Tree tree(clients, dimension);
  Level leaf{"leaves"};
  Level region{"regions"};
  Level root{"root"};
  Level single{"flat"};
  std::vector<Sum> of_regions;
  for (const auto& [begin, end] : Parts(0, clients, regions)) {
    std::vector<Sum> of_leaves;
    for (const auto& [first, last] : Parts(begin, end, leaves)) {
      of_leaves.push_back(tree.Gather(first, last, leaf));
    }
    of_regions.push_back(tree.Merge(of_leaves, region));
  }
  const double before_root = MemoryMb();
  const Sum total = tree.Merge(of_regions, root);
  const double after_root = MemoryMb();
  const Sum flat = tree.Gather(0, clients, single);
  for (const Level& level : {leaf, region, root, single}) Print(level);
  absl::PrintF("memory: %.0f MB before the root, %.0f MB with it\n", before_root, after_root);
  const bool same = std::equal(total.tally.flat().begin(), total.tally.flat().end(),
                               flat.tally.flat().begin(), flat.tally.flat().end());
  const bool all = total.tally.clients() == clients && flat.tally.clients() == clients;
  absl::PrintF("%d clients, %d integers: %s\n", clients, flat.tally.flat().size(),
               same && all ? "the same bits through the tree and flat" : "the bits DIFFER");
  return same && all ? 0 : 1;
}

}  // namespace
}  // namespace leeway

int main(int argc, char** argv) {
  const auto argument = [&](int i, unsigned long standard) {
    return argc > i ? std::strtoul(argv[i], nullptr, 10) : standard;
  };
  return leeway::Main(static_cast<uint32_t>(argument(1, 20000)), argument(2, 30),
                      static_cast<uint32_t>(argument(3, 4)), static_cast<uint32_t>(argument(4, 8)));
}
