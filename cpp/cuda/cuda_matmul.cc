// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt. Its matrices are column-major: a row-major matrix is the transpose
// of a column-major one with the same bytes, so c = a b is computed as c' = b' a'.
#include <algorithm>
#include <iterator>
#include <utility>

#include "cuda/cuda_library_kernels.h"
#include "cuda/cuda_split_product.h"

namespace memc::cuda {

namespace {

constexpr int kMostWays = 8;
constexpr std::array<int32_t, 4> kSplits{2, 4, 8, 16};
constexpr int64_t kFewResults = 1 << 20;  // Up to so many do not keep all of a device busy.
constexpr int64_t kLeastDepth = 128;      // Of a part of a product that is split.
constexpr size_t kBytesWord = 14;         // Of a key: the bytes of the workspace.

int TypeOf(Element element) {
  return element == kF32 ? kLtFloat : element == kF16 ? kLtHalf : kLtBfloat16;
}

// `rows` x `columns` column-major elements without gaps, `batch` times every `stride` elements.
Owned<LtLayout> Layout(Element type, int64_t rows, int64_t columns, int64_t batch, int64_t stride) {
  const CublasLt& lt = LoadCublasLt();
  auto layout = Made(lt.create_layout, CheckLt, "cublasLtMatrixLayoutCreate", TypeOf(type), rows,
                     columns, rows);
  if (batch > 1) {
    const auto count = static_cast<int32_t>(batch);
    CheckLt(lt.set_layout(layout.get(), kLtBatchCount, &count, sizeof(count)),
            "cublasLtMatrixLayoutSetAttribute");
    CheckLt(lt.set_layout(layout.get(), kLtBatchStride, &stride, sizeof(stride)),
            "cublasLtMatrixLayoutSetAttribute");
  }
  return layout;
}

void Set(LtProduct* product, int attribute, int32_t value) {
  CheckLt(LoadCublasLt().set_product(product, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
}

// Its elements are of the result's type, as the library takes them to be.
void SetBias(LtProduct* product, const void* bias) {
  CheckLt(
      LoadCublasLt().set_product(product, kLtBias, static_cast<const void*>(&bias), sizeof(bias)),
      "cublasLtMatmulDescSetAttribute");
}

Key KeyOf(const Product& p, const Terms& terms, size_t bytes) {
  Key key{kProduct,
          p.transpose_a,
          p.transpose_b,
          p.relu,
          p.tf32,
          terms.bias != nullptr,
          terms.residual != nullptr,
          terms.scale != nullptr,
          p.m,
          p.n,
          p.k,
          p.batch,
          p.stride_a,
          p.stride_b};
  key[kBytesWord] = static_cast<int64_t>(bytes);
  key[key.size() - 2] = p.factors;
  key.back() = p.result;
  return key;
}

bool Contains(const std::vector<LtAlgo>& algos, const LtAlgo& algo) {
  return std::any_of(algos.begin(), algos.end(), [&](const LtAlgo& other) {
    return std::equal(std::begin(algo.data), std::end(algo.data), std::begin(other.data));
  });
}

// Adds variants of algorithms that split a product with few results along its depth, which the
// library proposes seldom: a recurrent network's step has 32 rows. The parts are added up in the
// workspace, always in the same order.
void AddSplits(const ProductSite& site, LtHandle* handle, size_t bytes,
               std::vector<LtAlgo>& algos) {
  if (site.results > kFewResults) return;
  const CublasLt& lt = LoadCublasLt();
  const size_t whole = algos.size();
  for (size_t i = 0; i < whole; ++i) {
    for (const int32_t split : kSplits) {
      if (site.depth < split * kLeastDepth) break;
      LtAlgo algo = algos[i];
      LtHeuristic checked{};
      if (lt.set_config(&algo, kLtSplit, &split, sizeof(split)) == 0 &&
          lt.set_config(&algo, kLtReduction, &kLtInWorkspace, sizeof(kLtInWorkspace)) == 0 &&
          lt.check(handle, site.product.get(), site.b.get(), site.a.get(), site.c.get(),
                   site.c.get(), &algo, &checked) == 0 &&
          checked.workspace <= bytes && !Contains(algos, algo)) {
        algos.push_back(algo);
      }
    }
  }
}

// Adds what calls have chosen that differ in their workspace alone, as far as it fits this one: for
// other bytes the library proposes other algorithms, and leaves out faster ones.
void AddChoicesOfOthers(const Context& context, const Key& key, const ProductSite& site,
                        LtHandle* handle, size_t bytes, std::vector<Choice>& ways) {
  Key other = key;
  other[kBytesWord] = 0;
  for (auto at = context.choices.lower_bound(other); at != context.choices.end(); ++at) {
    if (!std::equal(key.begin(), key.begin() + kBytesWord, at->first.begin())) return;
    const Choice& choice = at->second;
    other[kBytesWord] = at->first[kBytesWord];
    if (other != at->first || std::find(ways.begin(), ways.end(), choice) != ways.end()) continue;
    LtAlgo algo{};
    std::copy_n(choice.begin(), std::size(algo.data), std::begin(algo.data));
    LtHeuristic checked{};
    if (!IsSplit(choice) &&
        LoadCublasLt().check(handle, site.product.get(), site.b.get(), site.a.get(), site.c.get(),
                             site.c.get(), &algo, &checked) == 0 &&
        checked.workspace <= bytes) {
      ways.push_back(choice);
    }
  }
}

// By the library or by memc's own kernels, as the choice says.
int RunEither(Context& context, const ProductSite& site, const Choice& choice, const Place& place,
              const Product& p, const void* a, const void* b, const Terms& terms, void* c) {
  if (!IsSplit(choice)) return RunProduct(context, site, choice, place, a, b, terms, c);
  return RunSplit(context, choice, place, p, static_cast<const float*>(a),
                  static_cast<const float*>(b), terms, static_cast<float*>(c));
}

}  // namespace

ProductSite DescribeProduct(const Product& p, const Terms& terms) {
  ProductSite made;
  const int compute = p.tf32 ? kLtComputeTf32 : kLtCompute;
  made.product =
      Made(LoadCublasLt().create_product, CheckLt, "cublasLtMatmulDescCreate", compute, kLtFloat);
  LtProduct* const product = made.product.get();
  Set(product, kLtTransposeA, static_cast<int32_t>(p.transpose_b));
  Set(product, kLtTransposeB, static_cast<int32_t>(p.transpose_a));
  if (terms.scale != nullptr) Set(product, kLtPointerMode, kLtOnDevice);
  const int epilogue =
      (p.relu ? kLtEpilogueRelu : 0) + (terms.bias != nullptr ? kLtEpilogueBias : 0);
  Set(product, kLtEpilogue, epilogue == 0 ? kLtEpilogueNone : epilogue);
  if (terms.bias != nullptr) SetBias(product, terms.bias);
  made.a = p.transpose_a ? Layout(p.factors, p.m, p.k, p.batch, p.stride_a)
                         : Layout(p.factors, p.k, p.m, p.batch, p.stride_a);
  made.b = p.transpose_b ? Layout(p.factors, p.k, p.n, p.batch, p.stride_b)
                         : Layout(p.factors, p.n, p.k, p.batch, p.stride_b);
  made.c = Layout(p.result, p.n, p.m, p.batch, p.m * p.n);
  made.results = p.batch * p.m * p.n;
  made.depth = p.k;
  return made;
}

int RunProduct(Context& context, const ProductSite& site, const Choice& choice, const Place& place,
               const void* a, const void* b, const Terms& terms, void* c) {
  static constexpr std::array<float, 2> kFactors{0, 1};
  const bool scaled = terms.scale != nullptr;
  const float* factors = scaled ? context.Factors(place.stream) : kFactors.data();
  const float* alpha = scaled ? terms.scale : &factors[1];
  const float* beta = terms.residual != nullptr ? &factors[1] : &factors[0];
  const void* added = terms.residual != nullptr ? terms.residual : c;
  if (terms.bias != nullptr) SetBias(site.product.get(), terms.bias);
  LtAlgo algo{};
  std::copy_n(choice.begin(), std::size(algo.data), std::begin(algo.data));
  // The library's first matrix is b, its second a.
  return LoadCublasLt().matmul(context.Lt(), site.product.get(), alpha, b, site.b.get(), a,
                               site.a.get(), beta, added, site.c.get(), c, site.c.get(), &algo,
                               place.workspace, place.bytes, place.stream);
}

std::vector<Choice> WaysOfProduct(const ProductSite& site, LtHandle* handle, size_t bytes) {
  const CublasLt& lt = LoadCublasLt();
  const auto preference = Made(lt.create_preference, CheckLt, "cublasLtMatmulPreferenceCreate");
  const auto most = static_cast<uint64_t>(bytes);
  CheckLt(lt.set_preference(preference.get(), kLtMostWorkspace, &most, sizeof(most)),
          "cublasLtMatmulPreferenceSetAttribute");
  std::array<LtHeuristic, kMostWays> found{};
  int count = 0;
  CheckLt(lt.heuristic(handle, site.product.get(), site.b.get(), site.a.get(), site.c.get(),
                       site.c.get(), preference.get(), kMostWays, found.data(), &count),
          "cublasLtMatmulAlgoGetHeuristic");
  std::vector<LtAlgo> usable;
  for (int i = 0; i < count; ++i) {
    if (found[i].status == 0 && found[i].workspace <= bytes) usable.push_back(found[i].algo);
  }
  AddSplits(site, handle, bytes, usable);
  std::vector<Choice> ways;
  for (const LtAlgo& algo : usable) {
    std::copy(std::begin(algo.data), std::end(algo.data), ways.emplace_back().begin());
  }
  return ways;
}

void Matmul(const Product& p, const Place& place, const void* a, const void* b, const Terms& terms,
            void* c) {
  Context& context = ContextOf(place.device);
  const std::lock_guard<std::mutex> lock(context.mutex);
  LtHandle* const handle = context.Lt();
  const Key key = KeyOf(p, terms, place.bytes);
  auto found = context.products.find(key);
  if (found == context.products.end()) {
    ProductSite made = DescribeProduct(p, terms);
    const auto run = [&](const Choice& choice) {
      return RunEither(context, made, choice, place, p, a, b, terms, c);
    };
    const auto all = [&] {
      std::vector<Choice> ways = WaysOfProduct(made, handle, place.bytes);
      const std::vector<Choice> own = SplitWays(context, p);
      ways.insert(ways.end(), own.begin(), own.end());
      AddChoicesOfOthers(context, key, made, handle, place.bytes, ways);
      return ways;
    };
    Taken taken;
    if (terms.residual == c) taken = {c, SizeOf(p.result) * p.batch * p.m * p.n};
    made.algo = context.Decide(key, run, all, place.stream, taken);
    found = context.products.emplace(key, std::move(made)).first;
  }
  const ProductSite& site = found->second;
  const int status = RunEither(context, site, site.algo, place, p, a, b, terms, c);
  if (IsSplit(site.algo)) {
    CheckDriver(status, "cuLaunchKernelEx");
  } else {
    CheckLt(status, "cublasLtMatmul");
  }
}

}  // namespace memc::cuda
