// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "copies/copy_lanes.h"

namespace memc {
namespace {

using Kind = CopyTimes::Kind;

const std::vector<CopyTimes> kTimes{{Kind::kThread, 0},
                                    {Kind::kAtStart, 0},
                                    {Kind::kAtDone, 0},
                                    {Kind::kRandom, 1},
                                    {Kind::kRandom, 2}};

std::vector<int> Numbers(size_t count, int first) {
  std::vector<int> found(count);
  std::iota(found.begin(), found.end(), first);
  return found;
}

TEST(EveryTimeGivesTheSameBytes) {
  for (const CopyTimes times : kTimes) {
    CopyLanes lanes;
    for (const size_t count : {size_t{1}, size_t{3}, size_t{1} << 16}) {
      const std::vector<int> source = Numbers(count, 5);
      std::vector<int> host(count), back(count);
      const size_t bytes = count * sizeof(int);
      const auto out = lanes.Start(source.data(), host.data(), bytes, "d2h", times);
      lanes.Wait(out);
      const auto in = lanes.Start(host.data(), back.data(), bytes, "h2d", times);
      lanes.Wait(in);
      CHECK(host == source);
      CHECK(back == source);
    }
  }
}

TEST(CopiesOfALaneRunInTheSequenceOfTheirStarts) {
  for (const CopyTimes times : kTimes) {
    CopyLanes lanes;
    // Each copies what the one before it has written: more than the ring holds at first.
    std::vector<std::vector<int>> values(100, std::vector<int>(50));
    values[0] = Numbers(50, 7);
    CopyLanes::Ticket last{};
    for (size_t n = 1; n < values.size(); ++n) {
      last = lanes.Start(values[n - 1].data(), values[n].data(), 50 * sizeof(int), "one", times);
    }
    lanes.Wait(last);
    CHECK(values.back() == values.front());
  }
}

TEST(ALaneIsNotBehindAnother) {
  CopyLanes lanes;
  const std::vector<int> source = Numbers(8, 1);
  std::vector<int> late(8), early(8);
  const auto waits = lanes.Start(source.data(), late.data(), 32, "one", {Kind::kAtDone, 0});
  const auto runs = lanes.Start(source.data(), early.data(), 32, "two", {Kind::kThread, 0});
  lanes.Wait(runs);
  CHECK(early == source);
  CHECK_EQ(late[0], 0);
  lanes.Wait(waits);
  CHECK(late == source);
}

TEST(AWaitCoversEarlierCopiesOfTheLane) {
  for (const CopyTimes times : kTimes) {
    CopyLanes lanes;
    const std::vector<int> source = Numbers(1000, 1);
    std::vector<int> first(1000), second(1000);
    lanes.Start(source.data(), first.data(), 4000, "one", times);
    lanes.Wait(lanes.Start(source.data(), second.data(), 4000, "one", times));
    CHECK(first == source);
    CHECK(second == source);
  }
}

TEST(DrainEndsAllCopies) {
  for (const CopyTimes times : kTimes) {
    CopyLanes lanes;
    const std::vector<int> source = Numbers(1000, 1);
    std::vector<std::vector<int>> found(20, std::vector<int>(1000));
    for (size_t n = 0; n < found.size(); ++n) {
      lanes.Start(source.data(), found[n].data(), 4000, n % 2 ? "one" : "two", times);
    }
    lanes.Drain();
    for (const auto& values : found) CHECK(values == source);
  }
}

TEST(SeveralThreadsShareTheLanes) {
  for (const CopyTimes times : kTimes) {
    CopyLanes lanes;
    std::vector<std::thread> threads;
    std::vector<int> right(4);
    for (int number = 0; number < 4; ++number) {
      threads.emplace_back([&, number] {
        for (int round = 0; round < 20; ++round) {
          const std::vector<int> source = Numbers(300, 1000 * number + round);
          std::vector<int> host(300), back(300);
          const auto out = lanes.Start(source.data(), host.data(), 1200, "d2h", times);
          lanes.Wait(out);
          lanes.Wait(lanes.Start(host.data(), back.data(), 1200, "h2d", times));
          right[static_cast<size_t>(number)] += back == source;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int count : right) CHECK_EQ(count, 20);
  }
}

#if !defined(__SANITIZE_THREAD__)
TEST(AForkedChildHasLanesOfItsOwn) {
  const std::vector<int> source = Numbers(100, 1);
  std::vector<int> found(100);
  auto& lanes = CopyLanes::OfThisProcess();
  lanes.Wait(lanes.Start(source.data(), found.data(), 400, "d2h", {}));
  const pid_t child = fork();
  if (child == 0) {
    std::vector<int> other(100);
    auto& own = CopyLanes::OfThisProcess();
    own.Wait(own.Start(source.data(), other.data(), 400, "d2h", {}));
    _exit(&own != &lanes && other == source ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
}
#endif

TEST(TimesAreReadFromText) {
  CHECK(CopyTimes::Parse(nullptr).kind == Kind::kThread);
  CHECK(CopyTimes::Parse("thread").kind == Kind::kThread);
  CHECK(CopyTimes::Parse("at-start").kind == Kind::kAtStart);
  CHECK(CopyTimes::Parse("at-done").kind == Kind::kAtDone);
  CHECK(CopyTimes::Parse("random:17").kind == Kind::kRandom);
  CHECK_EQ(CopyTimes::Parse("random:17").seed, 17U);
  for (const char* wrong :
       {"random:", "random", "random:-1", "random:x", "later", "random:99999999999999999999"}) {
    const std::string text =
        "MEMC_COPIES: expected thread, at-start, at-done or random:SEED, got " + std::string(wrong);
    CHECK_THROWS(std::invalid_argument, CopyTimes::Parse(wrong), text.c_str());
  }
}

}  // namespace
}  // namespace memc
