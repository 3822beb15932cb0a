# SPDX-License-Identifier: Apache-2.0
# memc for the CPU: docker build -t memc . ; docker run --rm -v "$PWD:/work" memc compile model.onnx
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip wheel --no-cache-dir --no-deps -w /wheels /src

# Kernels are compiled where the model is: TVM links them with g++.
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN wheel=$(echo /wheels/memc-*.whl) && pip install --no-cache-dir "$wheel[verify]"
WORKDIR /work
ENTRYPOINT ["memc"]
