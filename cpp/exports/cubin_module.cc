// SPDX-License-Identifier: Apache-2.0
// A module that stands for a TVM CUDA module and saves itself with a cubin instead of source, so
// that TVM's runtime can load it without a compiler. Saved form of a CUDA module: format, function
// table, code, where a string is its length in 8 bytes and its bytes.
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace {

namespace ffi = tvm::ffi;

std::string LengthPrefixed(const std::string& text) {
  const auto length = static_cast<uint64_t>(text.size());
  std::string bytes(sizeof(length), '\0');
  std::memcpy(&bytes[0], &length, sizeof(length));
  return bytes + text;
}

void Require(bool as_known) {
  if (!as_known) {
    TVM_FFI_THROW(ValueError) << "not a saved CUDA module of the TVM version memc was made for";
  }
}

// The format of a saved CUDA module: `cuda` for source, which TVM compiles itself where it finds a
// GPU.
std::string SavedFormat(const std::string& saved) {
  uint64_t length = 0;
  Require(saved.size() >= sizeof(length));
  std::memcpy(&length, saved.data(), sizeof(length));
  Require(length <= saved.size() - sizeof(length));
  return saved.substr(sizeof(length), length);
}

// The function table of a saved CUDA module: what lies between its format and its code.
std::string FunctionTable(const std::string& saved, const std::string& format,
                          const std::string& code) {
  const std::string head = LengthPrefixed(format);
  const std::string tail = LengthPrefixed(code);
  Require(saved.size() >= head.size() + tail.size());
  Require(saved.compare(saved.size() - tail.size(), tail.size(), tail) == 0);
  return saved.substr(head.size(), saved.size() - head.size() - tail.size());
}

std::string Inspect(const ffi::Module& module, const std::string& format) {
  const ffi::String text = module->InspectSource(format);
  return std::string(text.data(), text.size());
}

class CubinModuleObj : public ffi::ModuleObj {
 public:
  CubinModuleObj(std::string source, std::string saved)
      : source_(std::move(source)), saved_(std::move(saved)) {}

  const char* kind() const final { return "cuda"; }
  int GetPropertyMask() const final { return ffi::Module::kBinarySerializable; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String&) final { return std::nullopt; }
  ffi::Bytes SaveToBytes() const final { return ffi::Bytes(saved_); }
  ffi::String InspectSource(const ffi::String&) const final { return ffi::String(source_); }

 private:
  std::string source_;
  std::string saved_;
};

// What a module saves that stands for `original`, a CUDA module with source, whose source compiles
// to `cubin`.
ffi::Bytes SavedWithCubin(const ffi::Module& original, const ffi::Bytes& cubin) {
  if (std::string(original->kind()) != "cuda") {
    TVM_FFI_THROW(ValueError) << "expected a cuda module, got " << original->kind();
  }
  const ffi::Bytes bytes = original->SaveToBytes();
  const std::string before(bytes.data(), bytes.size());
  const std::string format = SavedFormat(before);
  const std::string table = FunctionTable(before, format, Inspect(original, format));
  return ffi::Bytes(LengthPrefixed("cubin") + table +
                    LengthPrefixed(std::string(cubin.data(), cubin.size())));
}

// The module of what `SavedWithCubin` gave.
ffi::Module CubinModule(const ffi::Bytes& saved, const ffi::String& source) {
  return ffi::Module(ffi::make_object<CubinModuleObj>(std::string(source.data(), source.size()),
                                                      std::string(saved.data(), saved.size())));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_saved_with_cubin, SavedWithCubin);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_cubin_module, CubinModule);
