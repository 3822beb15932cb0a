// SPDX-License-Identifier: Apache-2.0
#include "solvers/offload/lane_clock.h"

#include <algorithm>

namespace memc {

LaneClock::LaneClock(const Lanes& lanes) {
  out_.lane = lanes.out;
  in_.lane = lanes.in;
}

size_t LaneClock::Issue(Direction lane, int64_t bytes, bool forked) {
  Line& line = this->line(lane);
  if (!forked) AdvanceTo(now_ + line.lane.fork());
  const int64_t duration = line.lane.Duration(bytes);
  if (line.busy()) line.waiting_time += duration;
  line.issued_time += duration;
  line.left.push_back(duration * kFullSpeed);
  return line.left.size() - 1;
}

void LaneClock::AdvanceTo(int64_t time) {
  while (now_ < time) Step(time - now_);
}

void LaneClock::Run(int64_t cost) {
  if (out_.lane.drag == 0 && in_.lane.drag == 0) return AdvanceTo(now_ + cost);
  int64_t left = cost * kFullSpeed;
  while (left > 0) {
    const int64_t pace = Pace(), before = now_;
    Step((left + pace - 1) / pace);
    left -= (now_ - before) * pace;
  }
}

void LaneClock::AwaitCopy(Direction lane, size_t copy) {
  while (Ended(lane) <= copy) Step(INT64_MAX);
  AdvanceTo(now_ + line(lane).lane.join());
}

// The speed of ops, of kFullSpeed.
int64_t LaneClock::Pace() const {
  return kFullSpeed - (out_.busy() ? out_.lane.drag : 0) - (in_.busy() ? in_.lane.drag : 0);
}

int64_t LaneClock::IdleFrom(Direction lane) const {
  const Line& line = this->line(lane);
  if (!line.busy()) return now_;
  return now_ + (line.left[line.ended] + kFullSpeed - 1) / kFullSpeed + line.waiting_time;
}

// Up to the next end of a copy, and at most so far.
void LaneClock::Step(int64_t most) {
  const bool both = out_.busy() && in_.busy();
  int64_t step = most;
  for (Line* line : {&out_, &in_}) {
    if (!line->busy()) continue;
    const int64_t speed = both ? line->lane.shared : kFullSpeed;
    step = std::min(step, (line->left[line->ended] + speed - 1) / speed);
  }
  now_ += step;
  for (Line* line : {&out_, &in_}) {
    if (!line->busy()) continue;
    int64_t& left = line->left[line->ended];
    left -= step * (both ? line->lane.shared : kFullSpeed);
    if (left > 0) continue;
    if (++line->ended < line->left.size()) {
      line->waiting_time -= line->left[line->ended] / kFullSpeed;
    }
  }
}

}  // namespace memc
