// SPDX-License-Identifier: Apache-2.0
// Runs a CPU artifact with nothing but TVM's runtime (libtvm_runtime.so and libtvm_ffi.so):
//
//   run_with_tvm_only model.memc
//
// It feeds zeros and prints each output's size and, for f32, its mean. The artifact must call no
// library kernels (compile with --kernels generated). docs/artifact.md describes the files.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace ffi = tvm::ffi;

namespace {

using Object = ffi::json::Object;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

template <typename T>
T Get(const Object& object, const char* key) {
  return object.at(ffi::String(key)).cast<T>();
}

// Host memory, aligned as kernels assume.
struct HostAlloc {
  static constexpr size_t kAlignment = 64;
  void AllocData(DLTensor* tensor) {
    size_t bytes = (tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
    for (int i = 0; i < tensor->ndim; ++i) bytes *= tensor->shape[i];
    const size_t rounded = (bytes + kAlignment) / kAlignment * kAlignment;
    tensor->data = std::aligned_alloc(kAlignment, rounded);
    if (tensor->data == nullptr) throw std::bad_alloc();
    std::memset(tensor->data, 0, rounded);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

DLDataType TypeOf(const std::string& name) {
  if (name == "bool") return {kDLBool, 8, 1};
  if (name == "bf16") return {kDLBfloat, 16, 1};
  const auto bits = static_cast<uint8_t>(std::stoi(name.substr(1)));
  const uint8_t code = name[0] == 'f' ? kDLFloat : name[0] == 'i' ? kDLInt : kDLUInt;
  return {code, bits, 1};
}

// A tensor of zeros of the shape and type of an entry of plan.json.
ffi::Tensor Zeros(const Object& entry) {
  std::vector<int64_t> shape;
  for (const ffi::Any& extent : Get<ffi::json::Array>(entry, "shape")) {
    shape.push_back(extent.cast<int64_t>());
  }
  const DLDataType type = TypeOf(Get<ffi::String>(entry, "dtype"));
  return ffi::Tensor::FromNDAlloc(HostAlloc(), ffi::ShapeView(shape.data(), shape.size()), type,
                                  DLDevice{kDLCPU, 0});
}

std::vector<Object> Entries(const Object& plan, const char* key) {
  std::vector<Object> entries;
  for (const ffi::Any& entry : Get<ffi::json::Array>(plan, key)) {
    entries.push_back(entry.cast<Object>());
  }
  return entries;
}

// Copies each weight of a memory space from the safetensors file to its offset in the space.
void LoadWeights(const std::string& path, const Object& plan, const std::string& space,
                 const ffi::Tensor& slab) {
  const std::string file = ReadFile(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const auto header = ffi::json::Parse(file.substr(8, header_bytes)).cast<Object>();
  const char* data = file.data() + 8 + header_bytes;
  for (const Object& weight : Entries(plan, "weights")) {
    if (Get<ffi::String>(weight, "space") != space) continue;
    const auto stored = header.at(Get<ffi::String>(weight, "name")).cast<Object>();
    const auto range = Get<ffi::json::Array>(stored, "data_offsets");
    const auto begin = range[0].cast<int64_t>();
    const auto end = range[1].cast<int64_t>();
    std::memcpy(static_cast<char*>(slab.data_ptr()) + Get<int64_t>(weight, "offset"), data + begin,
                end - begin);
  }
}

int Run(const std::string& folder) {
  const auto plan = ffi::json::Parse(ReadFile(folder + "/plan.json")).cast<Object>();
  if (!Get<ffi::json::Array>(plan, "library_functions").empty()) {
    std::fprintf(stderr,
                 "the artifact calls memc's kernels; compile it with --kernels generated\n");
    return 1;
  }
  if (Get<ffi::String>(Get<Object>(plan, "target"), "kind") != "llvm") {
    std::fprintf(stderr, "the artifact is not for the CPU\n");
    return 1;
  }
  const ffi::Module library = ffi::Module::LoadFromFile(folder + "/model.so");
  const auto machine = library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  const int64_t pooled_allocator = 2;
  machine->GetFunction("vm_initialization")
      .value()(static_cast<int64_t>(kDLCPU), 0, pooled_allocator);
  auto call = [&](const std::string& name) { return machine->GetFunction(name).value(); };

  // Once: a storage for each memory space but the caller's own, filled if it holds weights.
  std::vector<ffi::Any> storages;
  for (const Object& space : Entries(plan, "spaces")) {
    const std::string name = Get<ffi::String>(space, "name");
    const auto holds = Get<ffi::String>(space, "holds");
    if (holds == "io") continue;
    storages.push_back(call("space." + name)());
    if (holds == "weights" && Get<int64_t>(space, "bytes") > 0) {
      LoadWeights(folder + "/weights.safetensors", plan, name,
                  call("bytes." + name)(storages.back()).cast<ffi::Tensor>());
    }
  }

  // Each run: inputs in, outputs out.
  std::vector<ffi::Tensor> outputs;
  std::vector<ffi::AnyView> arguments(storages.begin(), storages.end());
  std::vector<ffi::Tensor> tensors;
  for (const Object& input : Entries(plan, "inputs")) tensors.push_back(Zeros(input));
  for (const Object& output : Entries(plan, "outputs")) outputs.push_back(Zeros(output));
  tensors.insert(tensors.end(), outputs.begin(), outputs.end());
  for (const ffi::Tensor& tensor : tensors) arguments.emplace_back(tensor);
  ffi::Any result;
  call("main").CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);

  const std::vector<Object> entries = Entries(plan, "outputs");
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto name = Get<ffi::String>(entries[i], "name");
    const auto count = static_cast<int64_t>(outputs[i].numel());
    std::printf("%s: %lld elements", name.c_str(), static_cast<long long>(count));
    if (Get<ffi::String>(entries[i], "dtype") == "f32" && count > 0) {
      const auto* values = static_cast<const float*>(outputs[i].data_ptr());
      double sum = 0;
      for (int64_t k = 0; k < count; ++k) sum += values[k];
      std::printf(", mean %.6g", sum / static_cast<double>(count));
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: run_with_tvm_only model.memc\n");
    return 2;
  }
  try {
    return Run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
