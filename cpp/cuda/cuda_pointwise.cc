// SPDX-License-Identifier: Apache-2.0
// Pointwise convolutions as products of matrices by cuBLASLt, which can split a product along its
// depth where there are few results.
//
// The gradient in the weights is a sum of products, one for each image. They are added up in some
// partial sums, a batch of products at a time, which a last product sums up:
//
//   images 0 1 2 3 | 4 5 6 7     2 partial sums: first images 0 and 4, then 1 and 5, ...
//   sum    0         1           w = ones(1, 2) * sums
//
// Always in the same order, so that results repeat bit by bit.
#include <utility>

#include "cuda/cuda_library_kernels.h"

namespace memc::cuda {

namespace {

constexpr size_t kAligned = 256;
constexpr int kMostCounts =
    2;  // Numbers of partial sums that are tried: more have more parallel work.

// Bytes that partial sums take from the workspace; a single one is w itself.
size_t SumBytes(const Convolution& c, int64_t count) {
  if (count == 1) return 0;
  const size_t bytes = sizeof(float) * static_cast<size_t>(count) * c.y[1] * c.x[1];
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

int64_t Positions(const Convolution& c) {
  int64_t n = 1;
  for (int i = 0; i < c.rank; ++i) n *= c.x[i + 2];
  return n;
}

// One image of each partial sum.
Product OfImages(const Convolution& c, int64_t count) {
  Product p;
  p.transpose_b = true;
  p.tf32 = c.tf32;
  p.m = c.y[1];
  p.n = c.x[1];
  p.k = Positions(c);
  p.batch = count;
  const int64_t images = c.x[0] / count;
  if (count > 1) {
    p.stride_a = images * p.m * p.k;
    p.stride_b = images * p.n * p.k;
  }
  return p;
}

// Of all partial sums.
Product OfSums(const Convolution& c, int64_t count) {
  Product p;
  p.m = 1;
  p.n = static_cast<int64_t>(c.y[1]) * c.x[1];
  p.k = count;
  return p;
}

// The products for so many partial sums, made where they are not there yet.
const PartialSums& SumsOf(Context& context, const Convolution& c, int64_t count,
                          std::map<int64_t, PartialSums>& sums) {
  const auto known = sums.find(count);
  if (known != sums.end()) return known->second;
  PartialSums made;
  made.images = DescribeProduct(OfImages(c, count), {});
  made.total = DescribeProduct(OfSums(c, count), {});
  const std::vector<Choice> ways = WaysOfProduct(made.total, context.Lt(), 0);
  if (!ways.empty()) made.total.algo = ways.front();  // Without one its call fails.
  return sums.emplace(count, std::move(made)).first->second;
}

}  // namespace

bool IsPointwise(const Convolution& c) {
  bool pointwise = c.group == 1;
  for (int i = 0; i < c.rank; ++i) {
    pointwise = pointwise && c.w[i + 2] == 1 && c.strides[i] == 1 && c.pads[i] == 0;
  }
  return pointwise;
}

Product ProductOf(Kind kind, const Convolution& c) {
  Product p;
  p.tf32 = c.tf32;
  p.factors = p.result = c.type;
  if (c.channels_last) {
    const int64_t positions = c.x[0] * Positions(c);
    p.transpose_a = kind == kFilter;
    p.transpose_b = kind == kForward;
    p.relu = c.relu;
    p.m = kind == kFilter ? c.y[1] : positions;
    p.n = kind == kForward ? c.y[1] : c.x[1];
    p.k = kind == kFilter ? positions : kind == kForward ? c.x[1] : c.y[1];
    return p;
  }
  p.transpose_a = kind == kData;
  p.n = Positions(c);
  p.m = kind == kData ? c.x[1] : c.y[1];
  p.k = kind == kData ? c.y[1] : c.x[1];
  p.batch = c.x[0];
  p.stride_b = p.batch == 1 ? 0 : p.k * p.n;
  return p;
}

std::vector<Choice> WaysOfSums(Context& context, const Convolution& c, size_t bytes,
                               std::map<int64_t, PartialSums>& sums) {
  std::vector<Choice> all;
  int tried = 0;
  int64_t next = 0;
  for (int64_t count = c.x[0]; count > 0 && tried < kMostCounts; count = next) {
    next = count % 2 == 0 ? count / 2 : count > 1 ? 1 : 0;
    const size_t taken = SumBytes(c, count);
    if (taken > bytes || count > kOnes) continue;
    ++tried;
    const ProductSite& images = SumsOf(context, c, count, sums).images;
    for (Choice& choice : WaysOfProduct(images, context.Lt(), bytes - taken)) {
      choice[9] = count;
      all.push_back(choice);
    }
  }
  return all;
}

int RunSums(Context& context, const Convolution& c, std::map<int64_t, PartialSums>& all,
            const Choice& choice, const Place& place, const float* x, const float* y, float* w) {
  const int64_t count = choice[9];
  const PartialSums& sums = SumsOf(context, c, count, all);
  const size_t taken = SumBytes(c, count);
  Place rest = place;
  rest.workspace = static_cast<char*>(place.workspace) + taken;
  rest.bytes -= taken;
  float* to = count == 1 ? w : static_cast<float*>(place.workspace);
  const int64_t positions = Positions(c);
  for (int64_t i = 0; i < c.x[0] / count; ++i) {
    const Terms terms{nullptr, nullptr, i == 0 ? nullptr : to};
    const int status = RunProduct(context, sums.images, choice, rest, y + i * c.y[1] * positions,
                                  x + i * c.x[1] * positions, terms, to);
    if (status != 0) return status;
  }
  if (count == 1) return 0;
  const float* ones = context.Factors(place.stream) + 1;
  return RunProduct(context, sums.total, sums.total.algo, rest, ones, to, {}, w);
}

}  // namespace memc::cuda
