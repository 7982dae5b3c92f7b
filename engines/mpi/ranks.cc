#include "engines/mpi/ranks.h"

#include <mpi.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace leeway {
namespace {

// MPI counts with int.
constexpr size_t kMostBytes = size_t{1} << 28;
// Sums of this many integers at a time: what MPI needs of memory for a sum follows the block.
constexpr size_t kSumBlock = size_t{1} << 18;
// Fewer bytes than this go from rank to rank, whatever the nodes.
constexpr size_t kManyBytes = size_t{1} << 12;

// MPI waits at full speed. Where the wait may be long, for an order or for a slower rank, this
// leaves the core to those who compute: it looks often at first and then every millisecond. At
// first is a time, not a number of looks: on a busy machine each may cost a turn of all others.
void AwaitPatiently(MPI_Request& request) {
  const absl::Time often = absl::Now() + absl::Microseconds(100);
  absl::Duration pause = absl::Microseconds(10);
  while (true) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return;
    if (absl::Now() < often) {
      std::this_thread::yield();
      continue;
    }
    absl::SleepFor(pause);
    pause = std::min(pause * 1.2, absl::Milliseconds(1));
  }
}

}  // namespace

struct Ranks::Nodes {
  int count = 1;
  MPI_Comm within = MPI_COMM_NULL;   // the ranks of this node
  MPI_Comm between = MPI_COMM_NULL;  // the first rank of each node
};

// MPI's default error handler ends the job, so what its calls return is always success.
Ranks::Ranks() {
  int provided = 0;
  // Only this thread calls MPI; others compute.
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  nodes_ = std::make_unique<Nodes>();
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &nodes_->within);
  int within = 0;
  MPI_Comm_rank(nodes_->within, &within);
  MPI_Comm_split(MPI_COMM_WORLD, within == 0 ? 0 : MPI_UNDEFINED, rank_, &nodes_->between);
  const int own = within == 0 ? 1 : 0;
  MPI_Allreduce(&own, &nodes_->count, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

Ranks::~Ranks() {
  if (finished_) {
    MPI_Finalize();
  } else {
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
}

int Ranks::nodes() const { return nodes_->count; }

void Ranks::Broadcast(absl::Span<std::byte> bytes) const {
  const bool by_nodes = nodes_->count > 1 && nodes_->count < size_ && bytes.size() > kManyBytes;
  for (size_t begin = 0; begin < bytes.size(); begin += kMostBytes) {
    const absl::Span<std::byte> block = bytes.subspan(begin, kMostBytes);
    const auto count = static_cast<int>(block.size());
    if (!by_nodes) {
      MPI_Bcast(block.data(), count, MPI_BYTE, 0, MPI_COMM_WORLD);
      continue;
    }
    if (nodes_->between != MPI_COMM_NULL) {
      MPI_Bcast(block.data(), count, MPI_BYTE, 0, nodes_->between);
    }
    MPI_Bcast(block.data(), count, MPI_BYTE, 0, nodes_->within);
  }
}

uint64_t Ranks::BroadcastPatiently(uint64_t value) const {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(&value, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD, &request);
  AwaitPatiently(request);
  return value;
}

uint64_t Ranks::Broadcast(uint64_t value) const {
  MPI_Bcast(&value, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  return value;
}

void Ranks::Broadcast(std::string& text) const {
  text.resize(Broadcast(uint64_t{text.size()}));
  Broadcast(absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size()));
}

std::vector<std::string> Ranks::Gather(const std::string& text) const {
  const int own = static_cast<int>(text.size());
  std::vector<int> sizes(static_cast<size_t>(size_));
  MPI_Gather(&own, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::vector<int> begins(sizes.size(), 0);
  for (size_t i = 1; i < sizes.size(); ++i) begins[i] = begins[i - 1] + sizes[i - 1];
  std::string all(first() ? static_cast<size_t>(begins.back() + sizes.back()) : 0, '\0');
  MPI_Gatherv(text.data(), own, MPI_BYTE, all.data(), sizes.data(), begins.data(), MPI_BYTE, 0,
              MPI_COMM_WORLD);
  std::vector<std::string> texts;
  if (!first()) return texts;
  for (size_t i = 0; i < sizes.size(); ++i) {
    texts.push_back(all.substr(static_cast<size_t>(begins[i]), static_cast<size_t>(sizes[i])));
  }
  return texts;
}

// Unsigned, because a sum of limbs may wrap; the integers are two's complement either way.
// Not MPI_Ireduce, which would begin before the slowest rank is done: it cuts a block into pieces
// of a few kilobytes that each wait for the next look, and takes 5 to 25 times as long.
void Ranks::Sum(absl::Span<int64_t> values) const {
  for (size_t begin = 0; begin < values.size(); begin += kSumBlock) {
    const absl::Span<int64_t> block = values.subspan(begin, kSumBlock);
    MPI_Reduce(first() ? MPI_IN_PLACE : block.data(), first() ? block.data() : nullptr,
               static_cast<int>(block.size()), MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  }
}

absl::Status Ranks::Agree(const absl::Status& own) const {
  const int failed = own.ok() ? size_ : rank_;
  int speaker = size_;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(&failed, &speaker, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &request);
  AwaitPatiently(request);
  if (speaker == size_) return absl::OkStatus();
  int code = static_cast<int>(own.code());
  MPI_Bcast(&code, 1, MPI_INT, speaker, MPI_COMM_WORLD);
  std::string message(own.message());
  int length = static_cast<int>(message.size());
  MPI_Bcast(&length, 1, MPI_INT, speaker, MPI_COMM_WORLD);
  message.resize(static_cast<size_t>(length));
  MPI_Bcast(message.data(), length, MPI_BYTE, speaker, MPI_COMM_WORLD);
  return absl::Status(static_cast<absl::StatusCode>(code),
                      absl::StrCat("rank ", speaker, ": ", message));
}

}  // namespace leeway
