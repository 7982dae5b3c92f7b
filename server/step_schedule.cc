#include "server/step_schedule.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace leeway {
namespace {

// Standard errors within which two blocks' losses count as equal.
constexpr double kClear = 2;

}  // namespace

StepSchedule::StepSchedule(uint32_t largest, bool exact)
    : shortest_(exact ? 1 : 2), steps_(largest) {
  Restart();
}

void StepSchedule::Restart() {
  length_ = shortest_;
  last_loss_ = std::numeric_limits<double>::quiet_NaN();
  before_ = {};
  current_ = {};
}

void StepSchedule::Absorb(double loss, double guaranteed) {
  // Noise in what is compared: half the mean squared change between rounds is the variance
  // of one, or more where the loss also moves. With exact losses there is none.
  const double change = std::isnan(last_loss_) || shortest_ == 1 ? 0 : loss - last_loss_;
  last_loss_ = loss;
  current_ = {current_.rounds + 1, current_.loss + loss, current_.variance + change * change / 2,
              current_.guaranteed + guaranteed};
  if (current_.rounds < length_) return;
  if (before_.rounds == 0) {
    before_ = current_;
    current_ = {};
    return;
  }
  const double decrease = (before_.loss - current_.loss) / length_;
  const double error = std::sqrt(before_.variance + current_.variance) / length_;
  // From the middle of one block to the middle of the next. Of single rounds, the first one's
  // step leads from one to the other.
  const double needed =
      length_ == 1 ? before_.guaranteed : (before_.guaranteed + current_.guaranteed) / 2;
  if (steps_ > 1 && !(decrease + kClear * error >= needed)) {
    // The round that has just ended took the old number; what comes after is judged alone.
    steps_ /= 2;
    Restart();
    return;
  }
  if (decrease - kClear * error >= needed || steps_ == 1) {
    before_ = current_;
  } else {  // not clear yet: compare longer blocks
    length_ *= 2;
    before_ = {before_.rounds + current_.rounds, before_.loss + current_.loss,
               before_.variance + current_.variance, before_.guaranteed + current_.guaranteed};
  }
  current_ = {};
}

std::vector<double> StepSchedule::Save() const {
  std::vector<double> state{static_cast<double>(steps_), length_, last_loss_};
  for (const Block& block : {before_, current_}) {
    state.insert(state.end(), {block.rounds, block.loss, block.variance, block.guaranteed});
  }
  return state;
}

absl::Status StepSchedule::Restore(absl::Span<const double> state) {
  if (state.size() != kStateSize || !(state[0] >= 1 && state[0] <= 0x1p32) || !(state[1] >= 1)) {
    return absl::DataLossError(
        absl::StrCat("the saved choice of local steps has ", state.size(), " unusable numbers"));
  }
  steps_ = static_cast<uint32_t>(state[0]);
  length_ = state[1];
  last_loss_ = state[2];
  before_ = {state[3], state[4], state[5], state[6]};
  current_ = {state[7], state[8], state[9], state[10]};
  return absl::OkStatus();
}

}  // namespace leeway
