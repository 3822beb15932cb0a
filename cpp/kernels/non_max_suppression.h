// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_NON_MAX_SUPPRESSION_H_
#define MEMC_NON_MAX_SUPPRESSION_H_

#include <cstdint>

namespace memc {

struct SuppressionShape {
  int64_t batches, classes, boxes, candidates;
  int64_t most;  // Boxes that are chosen of each class of each batch.
  bool center;   // Boxes are a middle and sides, and not two opposite corners.
};

// Bytes for the chosen boxes of one class.
int64_t SuppressionRoom(int64_t most);

// Of the candidates [batches, classes, candidates] of each class, one after another, the first
// `most` whose intersection over union with no chosen one is above the threshold, then -1. A
// candidate names one of its batch's boxes [batches, boxes, 4], or is negative and names none. The
// workspace has room for a class or more; as many classes are worked on at the same time, or else
// the candidates of one are compared with the chosen ones on several threads.
void NonMaxSuppression(const SuppressionShape& shape, const float* boxes, const int64_t* candidates,
                       float threshold, int64_t* result, char* workspace, int64_t workspace_bytes);

}  // namespace memc

#endif  // MEMC_NON_MAX_SUPPRESSION_H_
