// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_handles.h"

#include "cuda/cuda_context.h"

namespace memc::cuda {

// A destructor cannot throw: that an object is not destroyed changes no result.

void Destroy::operator()(CudnnTensor* object) const { LoadCudnn().destroy_tensor(object); }
void Destroy::operator()(CudnnFilter* object) const { LoadCudnn().destroy_filter(object); }
void Destroy::operator()(CudnnConvolution* object) const {
  LoadCudnn().destroy_convolution(object);
}
void Destroy::operator()(CudnnActivation* object) const { LoadCudnn().destroy_activation(object); }
void Destroy::operator()(CudnnDescriptor* object) const { LoadCudnn().destroy_descriptor(object); }
void Destroy::operator()(LtProduct* object) const { LoadCublasLt().destroy_product(object); }
void Destroy::operator()(LtLayout* object) const { LoadCublasLt().destroy_layout(object); }
void Destroy::operator()(LtPreference* object) const { LoadCublasLt().destroy_preference(object); }
void Destroy::operator()(Event* object) const { LoadDriver().destroy_event(object); }
void Destroy::operator()(CapturedGraph* object) const { LoadDriver().destroy_graph(object); }
void Destroy::operator()(ExecutableGraph* object) const { LoadDriver().destroy_executable(object); }
void Destroy::operator()(StreamObject* object) const { LoadDriver().destroy_stream(object); }

DeviceBytes::DeviceBytes(size_t bytes) {
  CheckDriver(LoadDriver().allocate(&address_, bytes), "cuMemAlloc");
}

DeviceBytes::~DeviceBytes() { LoadDriver().free(address_); }

}  // namespace memc::cuda
