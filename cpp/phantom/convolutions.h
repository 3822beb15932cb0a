// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_PHANTOM_CONVOLUTIONS_H_
#define MEMC_PHANTOM_CONVOLUTIONS_H_

#include <cudnn.h>

namespace phantom {

// Follow the convolution that a graph of cuDNN's consists of, from its tensors by heuristics and
// configurations to plans; descriptors in between may be gone by then.
void ForgetDescriptor(cudnnBackendDescriptor_t descriptor);
void FollowSet(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t count, const void* values);
void FollowGraph(cudnnBackendDescriptor_t graph);
void FollowConfigs(cudnnBackendDescriptor_t heuristics, int64_t count, const void* configs);

// What the workspace of a plan takes on the described device beyond what cuDNN says, in bytes.
int64_t MissingBytes(cudnnBackendDescriptor_t plan);

}  // namespace phantom

#endif  // MEMC_PHANTOM_CONVOLUTIONS_H_
