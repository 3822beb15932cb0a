// SPDX-License-Identifier: Apache-2.0
// NCCL without other ranks: communicators that say what they were made for, and collectives that do
// nothing.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "device.h"
#include "export.h"

using ncclComm_t = void*;
using ncclResult_t = int;
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t;

namespace phantom {

namespace {

constexpr ncclResult_t ncclSuccess = 0;

// Bytes of the device as NCCL 2.28.9 took them on an H200 for groups of one rank, with 1 to 64
// channels: kernels once, and for each communicator three pages a channel and one more than the
// communicators before it. What it takes to reach other ranks was not measured.
constexpr int64_t kKernels = 86 * int64_t{kPage}, kPagesOfChannel = 3, kChannels = 64;

struct Place {
  int ranks, rank;
  int64_t bytes;
};
struct Communicators {
  std::mutex mutex;
  std::map<ncclComm_t, Place> places;
  bool any = false;
};

int64_t Channels() {
  const char* most = std::getenv("NCCL_MAX_NCHANNELS");
  const long long asked = most == nullptr ? 0 : std::atoll(most);
  return asked > 0 && asked < kChannels ? asked : kChannels;
}
Communicators& All() {
  static auto* const all = new Communicators;
  return *all;
}

ncclResult_t New(ncclComm_t* made, int ranks, int rank) {
  *made = reinterpret_cast<ncclComm_t>(NewHandle());
  Communicators& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto before = static_cast<int64_t>(all.places.size());
  const int64_t bytes = (kPagesOfChannel * Channels() + 1 + before) * int64_t{kPage};
  CountNccl(bytes + (all.any ? 0 : kKernels));
  all.any = true;
  all.places[*made] = {ranks, rank, bytes};
  return ncclSuccess;
}

ncclResult_t Destroy(ncclComm_t communicator) {
  Communicators& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.places.find(communicator);
  if (found == all.places.end()) return ncclSuccess;
  CountNccl(-found->second.bytes);
  all.places.erase(found);
  return ncclSuccess;
}

Place Find(ncclComm_t communicator) {
  Communicators& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.places.find(communicator);
  return found == all.places.end() ? Place{1, 0, 0} : found->second;
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* made, int ranks, ncclUniqueId,
                                                  int rank) {
  return New(made, ranks, rank);
}
MEMC_PHANTOM_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId,
                                                        int rank, ncclConfig_t*) {
  return New(made, ranks, rank);
}
MEMC_PHANTOM_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t* made, int ranks, int rank,
                                                          int, ncclUniqueId*, ncclConfig_t*) {
  return New(made, ranks, rank);
}
MEMC_PHANTOM_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t* made, int count, const int*) {
  for (int rank = 0; rank < count; ++rank) New(made + rank, count, rank);
  return ncclSuccess;
}
MEMC_PHANTOM_EXPORT ncclResult_t ncclCommSplit(ncclComm_t from, int, int, ncclComm_t* made,
                                               ncclConfig_t*) {
  const Place place = Find(from);
  return New(made, place.ranks, place.rank);
}
MEMC_PHANTOM_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  return Destroy(communicator);
}
MEMC_PHANTOM_EXPORT ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  return Destroy(communicator);
}
MEMC_PHANTOM_EXPORT ncclResult_t ncclCommCount(ncclComm_t communicator, int* count) {
  *count = Find(communicator).ranks;
  return ncclSuccess;
}
MEMC_PHANTOM_EXPORT ncclResult_t ncclCommUserRank(ncclComm_t communicator, int* rank) {
  *rank = Find(communicator).rank;
  return ncclSuccess;
}
MEMC_PHANTOM_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
MEMC_PHANTOM_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 1, sizeof *id);
  return ncclSuccess;
}
MEMC_PHANTOM_EXPORT const char* ncclGetLastError(ncclComm_t) { return ""; }
