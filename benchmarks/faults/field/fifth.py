"""A fifth set: looked at once, then learned from in general terms. Four in five are not torch:
schedulers, devices, clouds and frameworks of many kinds.
"""

from aorta.attribution import RankEnd
from benchmarks.faults.field import RESTART, STOP, UNKNOWN, Excerpt, steps, traceback

_S = "/opt/conda/lib/python3.10/site-packages"

EXCERPTS: tuple[Excerpt, ...] = (
    # ---- TensorFlow, Keras, TPU ----
    Excerpt("tf_ps_gone", "TensorFlow parameter server: a peer is gone", "network_loss", RESTART,
        steps(1952, 1990, "I1108 21:10:20.8 1404 hooks.py:262] loss = {loss:.4f}, step = {n}") + "ERROR:tensorflow:/job:worker/task:2 encountered the following error when processing closure: UnavailableError():Graph execution error:\n\nSocket closed\nAdditional GRPC error information from remote target /job:ps/replica:0/task:0/device:CPU:0:\n:{\"created\":\"@1663638747.9\",\"description\":\"Error received from peer ipv4:10.2.1.6:2222\",\"grpc_message\":\"Socket closed\",\"grpc_status\":14}\n"),
    Excerpt("keras_file", "Keras: weights that are not there", "missing_file", STOP,
        traceback("FileNotFoundError: [Errno 2] Unable to synchronously open file (unable to open "
                  "file: name = '/models/base.weights.h5', errno = 2, error message = 'No such "
                  "file or directory', flags = 0, o_flags = 0)", "/app/train.py:main:model.load_weights('/models/base.weights.h5')", f"{_S}/h5py/_hl/files.py:make_fid:fid = h5f.open(name, flags, fapl=fapl)")),
    Excerpt("keras_layers", "Keras: weights of another model", "checkpoint_mismatch", STOP,
        traceback("ValueError: Layer count mismatch when loading weights from file. Model "
                  "expected 12 layers, found 10 saved layers.", "/app/train.py:main:model.load_weights(p)", f"{_S}/keras/src/legacy/saving/legacy_h5_format.py:load_weights_from_hdf5_group:raise ValueError(")),
    Excerpt("keras_input", "Keras: input of another rank", "shape_mismatch", STOP,
        "Epoch 1/40\n" + traceback("ValueError: Exception encountered when calling "
                                   "Functional.call().\n\nInput 0 of layer \"conv1\" is "
                                   "incompatible with the layer: expected min_ndim=4, found "
                                   "ndim=3. Full shape received: (None, 224, 224)", "/app/train.py:main:model.fit(ds)")),
    Excerpt("tf_nan_callback", "Keras: NaN ends it", "nan", RESTART,
        "Epoch 3/40\n 211/1563 [===>..........................] - ETA: 1:22 - loss: nan - "
        "accuracy: 0.10Batch 211: Invalid loss, terminating training\nTraceback (most recent call "
        "last):\n  File \"/app/train.py\", line 80, in main\n    raise SystemExit('loss is "
        "NaN')\nSystemExit: loss is NaN\n"),
    Excerpt("tf_gpu_oom", "TensorFlow: the allocator before any step", "device_oom", STOP,
        "2026-07-01 10:00:03.1: W tensorflow/core/common_runtime/bfc_allocator.cc:497] Allocator "
        "(GPU_0_bfc) ran out of memory trying to allocate 96.00GiB (rounded to "
        "103079215104)requested by op RandomUniform\nIf the cause is memory fragmentation maybe "
        "the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the "
        "situation.\n" + traceback("tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__RandomUniform_device_/job:localhost/replica:0/task:0/device:GPU:0}} OOM when allocating tensor with shape[1048576,24576] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:RandomUniform]", "/app/train.py:main:model = build_model(cfg)", "/app/model.py:build_model:emb = layers.Embedding(n, d)")),
    Excerpt("tpu_maintenance", "a TPU VM taken for maintenance", "preempted", RESTART,
        steps(880, 899, "I0701 10:00:0{n}.1 99 train.py:70] step {n}, loss={loss:.3f}") + "E0701 10:01:00.2 99 maintenance.py:31] TPU maintenance event: TERMINATE_ON_HOST_MAINTENANCE; this instance was preempted\n"),
    Excerpt("tpu_in_use", "libtpu held by another process", "bad_config", RESTART,
        traceback("RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already "
                  "in use by process with pid 1811. Not attempting to load libtpu.so in this "
                  "process.", "/app/train.py:main:jax.devices()")),
    # ---- Paddle, MindSpore, oneFlow, MXNet-like ----
    Excerpt("paddle_term", "Paddle: one worker raises, the others are ended", "data_error", RESTART,
        ranks={0: steps(40, 60, "[2026/07/01 10:00:00] ppocr INFO: epoch: [3/1200], global_step: "
                                "{n}, lr: 0.001000, loss: {loss:.4f}, ips: 22.1 samples/s") + "\n--------------------------------------\nC++ Traceback (most recent call last):\n--------------------------------------\nNo stack trace in paddle, may be caused by external reasons.\n\n----------------------\nError Message Summary:\n----------------------\nFatalError: `Termination signal` is detected by the operating system.\n  [SignalInfo: *** SIGTERM (@0x302b) received by PID 12410 (TID 0x7f6b) from PID 12331 ***]\n",
               1: steps(40, 60, "[2026/07/01 10:00:00] ppocr INFO: epoch: [3/1200], global_step: "
                                "{n}, lr: 0.001000, loss: {loss:.4f}, ips: 22.1 samples/s") + traceback("PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f11>", "/app/train.py:main:for batch in loader()", "/app/data.py:__getitem__:img = Image.open(io.BytesIO(raw))")}, root_ranks=(1,)),
    Excerpt("paddle_719", "Paddle: a launch failure of the device", "illegal_access", RESTART,
        steps(740, 770, "[2026/07/01 19:33:12] ppocr INFO: epoch: [3/1200], global_step: {n}, lr: "
                        "0.001000, loss: {loss:.6f}, avg_batch_cost: 0.18020 s") + traceback("OSError: (External) CUDA error(719), unspecified launch failure.\n  [Hint: 'cudaErrorLaunchFailure'. An exception occurred on the device while executing a kernel. Common causes include dereferencing an invalid device pointer and accessing out of bounds shared memory.] (at /paddle/paddle/phi/backends/gpu/cuda/cuda_info.cc:259)", "/app/tools/train.py:main:program.train()")),
    Excerpt("mindspore_config", "MindSpore: a wrong parallel mode", "bad_config", STOP,
        traceback("ValueError: For 'set_auto_parallel_context', the argument 'parallel_mode' must "
                  "be one of ['stand_alone', 'data_parallel', 'hybrid_parallel', "
                  "'semi_auto_parallel', 'auto_parallel'], but got 'dataparallel'.", "/app/train.py:main:set_auto_parallel_context(parallel_mode=cfg.mode)", f"{_S}/mindspore/parallel/_auto_parallel_context.py:set_parallel_mode:raise ValueError(")),
    Excerpt("ascend_hccp", "Ascend: the last process still holds the device", "port_in_use", RESTART,
        traceback("RuntimeError: [ERROR] HCCL error in: "
                  "torch_npu/csrc/distributed/ProcessGroupHCCL.cpp:64\nEJ0001: Failed to "
                  "initialize the HCCP process. Reason: Maybe the last training process is "
                  "running.\n        Solution: Wait for 10s after killing the last training "
                  "process and try again.", "/app/src/train.py:main:dist.barrier()")),
    Excerpt("ascend_oom", "Ascend: device memory after many steps", "device_oom", RESTART,
        steps(2100, 2130) + traceback("RuntimeError: NPU out of memory. Tried to allocate 2.00 "
                                      "GiB (NPU 3; 60.97 GiB total capacity; 57.11 GiB already "
                                      "allocated; 57.11 GiB current active; 1.10 GiB free; 58.00 "
                                      "GiB reserved in total by PyTorch)", "/app/train.py:main:loss.backward()")),
    Excerpt("ascend_link", "Ascend: a collective that does not end", "collective_timeout", RESTART,
        steps(300, 320) + "[ERROR] HCCL(4412,python):2026-07-01-10:44:02 "
                          "[task_exception_handler.cc:585] Task from HCCL run failed.\nEI0002: "
                          "The wait execution of the Notify register times out. Reason: The "
                          "Notify register has not received the Notify record from remote rank "
                          "[3].\n"),
    # ---- JAX, more ----
    Excerpt("jax_barrier_task", "JAX: a barrier that one task never reached", "collective_timeout", RESTART,
        steps(10, 40) + traceback("jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: "
                                  "Barrier timed out. Id: save_checkpoint::40. This usually "
                                  "happens because a task triggered the barrier too early or too "
                                  "slowly. Please look at the task logs (both timed out and first "
                                  "task) to debug further.\n# of tasks that reached the barrier: "
                                  "7/8.\nThe first task at the barrier: "
                                  "/job:jax_worker/replica:0/task:0. Some timed out task "
                                  "names:\n/job:jax_worker/replica:0/task:5", "/app/train.py:main:mngr.save(40)"), root_ranks=(5,)),
    Excerpt("jax_mesh", "JAX: a mesh larger than the machine", "bad_config", STOP,
        traceback("ValueError: Number of devices 8 must be >= the product of mesh_shape (4, 4)", "/app/train.py:main:mesh = make_mesh(cfg.mesh)", f"{_S}/jax/experimental/mesh_utils.py:create_device_mesh:raise ValueError(")),
    Excerpt("jax_concretization", "JAX: an error of tracing", "user_exception", RESTART,
        traceback("jax.errors.TracerBoolConversionError: Attempted boolean conversion of traced "
                  "array with shape bool[].\nThe error occurred while tracing the function step "
                  "at /app/train.py:31 for jit.", "/app/train.py:main:state = step(state, batch)")),
    Excerpt("jax_cudnn_old", "JAX: a library older than was built for", "bad_config", RESTART,
        "E0701 10:00:00.1 88 cuda_dnn.cc:466] Loaded runtime CuDNN library: 8.9.2 but source was "
        "compiled with: 9.1.0.  CuDNN library needs to have matching major version and equal or "
        "higher minor version.\n" + traceback("jaxlib.xla_extension.XlaRuntimeError: "
                                              "FAILED_PRECONDITION: DNN library initialization "
                                              "failed. Look at the errors above for more "
                                              "details.", "/app/train.py:main:params = init(key)")),
    # ---- Ray, Dask, Spark ----
    Excerpt("ray_tune_all", "Ray Tune: every trial has the same mistake", "bad_config", STOP,
        "".join(f"(train_fn pid={p}) Traceback (most recent call last):\n(train_fn pid={p})   "
                f"File \"/app/t.py\", line 12, in train_fn\n(train_fn pid={p})     opt = "
                f"OPTIMIZERS[config['optimiser']]\n(train_fn pid={p}) KeyError: 'optimiser'\n" for p in (11, 12, 13)) + "ray.tune.error.TuneError: ('Trials did not complete', [train_fn_a, train_fn_b, train_fn_c])\n"),
    Excerpt("ray_head_gone", "Ray: the head is gone", "network_loss", RESTART,
        steps(20, 44, "(RayTrainWorker pid=412) step {n} loss {loss:.3f}") + "[2026-07-01 10:00:00,100 E 71 90] gcs_rpc_client.h:179: Failed to connect to GCS at address 10.4.0.2:6379 within 5 seconds.\n[2026-07-01 10:01:00,100 C 71 90] gcs_rpc_client.h:201: Failed to connect to GCS. Shutting down raylet\n"),
    Excerpt("ray_object_lost", "Ray: an object's node died", "hardware_fault", RESTART,
        steps(3, 12, "(worker pid=88) step {n} loss {loss:.3f}") + traceback("ray.exceptions.OwnerDiedError: Failed to retrieve object 00ffff. The object's owner has exited. This is the Python worker that first created the ObjectRef via `.remote()` or `ray.put()`. The node was terminated: node (ip 10.4.0.9) was marked dead", "/app/t.py:main:ray.get(ref)")),
    Excerpt("spark_fetch", "Spark training: an executor lost for memory", "host_oom", RESTART,
        "26/07/01 10:00:00 WARN TaskSetManager: Lost task 3.0 in stage 7.0 (TID 44) (10.4.0.7 "
        "executor 3): ExecutorLostFailure (executor 3 exited caused by one of the running tasks) "
        "Reason: Container killed by YARN for exceeding memory limits. 20.1 GB of 20 GB physical "
        "memory used.\n26/07/01 10:00:01 ERROR TaskSetManager: Task 3 in stage 7.0 failed 4 "
        "times; aborting job\n"),
    Excerpt("xgb_ray", "XGBoost: labels it does not take", "data_error", RESTART,
        traceback("xgboost.core.XGBoostError: [10:00:00] /workspace/src/data/data.cc:513: Check "
                  "failed: valid: Label contains NaN, infinity or a value too large.", "/app/t.py:main:xgb.train(params, dtrain)")),
    # ---- Slurm, PBS, LSF, Flux, MPI ----
    Excerpt("slurm_kill_bad_exit_import", "srun -K: all tasks lack a module", "import_error", STOP,
        "".join(f"{r}: Traceback (most recent call last):\n{r}:   File \"/app/train.py\", line 3, "
                f"in <module>\n{r}:     import transformer_engine\n{r}: ModuleNotFoundError: No "
                "module named 'transformer_engine'\n" for r in range(4)) + "srun: error: c12-n3: "
                                                                           "tasks 0-3: Exited with exit code 1\nsrun: Terminating StepId=771234.0\nslurmstepd: error: *** STEP 771234.0 ON c12-n3 CANCELLED AT 2026-07-01T10:00:02 ***\n"),
    Excerpt("slurm_scancel_job", "a person cancels the job", "cancelled", STOP,
        steps(700, 720, "[INFO] step {n} loss {loss:.3f}") + "slurmstepd: error: *** JOB 771235 "
                                                             "ON c12-n3 CANCELLED AT "
                                                             "2026-07-01T11:00:02 ***\nsrun: Job "
                                                             "step aborted: Waiting up to 32 "
                                                             "seconds for job step to "
                                                             "finish.\nsrun: error: c12-n4: task "
                                                             "1: Terminated\n"),
    Excerpt("slurm_node_down", "Slurm: a node stops answering", "hardware_fault", RESTART,
        steps(50, 60) + "srun: error: Node failure on c12-n7\nslurmstepd: error: *** JOB 771236 "
                        "ON c12-n3 CANCELLED AT 2026-07-01T12:00:02 DUE TO NODE FAILURE, SEE "
                        "SLURMCTLD LOG FOR DETAILS ***\n"),
    Excerpt("slurm_oom_cgroup", "Slurm: the cgroup kills one task", "host_oom", RESTART,
        steps(5, 25, "2: step {n} loss {loss:.3f}") + "slurmstepd: error: Detected 1 oom_kill "
                                                      "event in StepId=771237.0. Some of the step "
                                                      "tasks have been OOM Killed.\nsrun: error: "
                                                      "c12-n5: task 2: Out Of Memory\nsrun: "
                                                      "Terminating StepId=771237.0\nslurmstepd: "
                                                      "error: *** STEP 771237.0 ON c12-n3 "
                                                      "CANCELLED AT 2026-07-01T12:30:02 ***\n", root_ranks=(2,)),
    Excerpt("slurm_invalid_qos", "Slurm: an account that may not", "bad_config", STOP,
        "srun: error: Unable to allocate resources: Invalid qos specification\n"),
    Excerpt("slurm_socket_timeout", "Slurm: the controller does not answer", "network_loss", RESTART,
        "srun: error: slurm_receive_msgs: [[c12-n9]:6818] failed: Socket timed out on send/recv "
        "operation\nsrun: error: Task launch for StepId=771239.0 failed on node c12-n9: Socket "
        "timed out on send/recv operation\nsrun: error: Application launch failed: Socket timed "
        "out on send/recv operation\nsrun: Job step aborted\n"),
    Excerpt("pbs_mem", "PBS: memory beyond what was asked for", "host_oom", RESTART,
        steps(11, 19) + "=>> PBS: job killed: mem 134217940kb exceeded limit 134217728kb\n"),
    Excerpt("lsf_runlimit", "LSF: the run limit", "time_limit", STOP,
        steps(9000, 9020) + "User defined signal 2\nTERM_RUNLIMIT: job killed after reaching LSF "
                            "run time limit.\nExited with exit code 140.\n"),
    Excerpt("flux_exit", "Flux: one task fails, the rest are ended", "assertion", RESTART,
        steps(30, 52, "3: step {n} loss {loss:.3f}") + "".join(f"3: {row}\n" for row in traceback("AssertionError: negative token count in bucket 7", "/app/train.py:main:pack(batch)", "/app/pack.py:pack:assert n >= 0").splitlines()) + "flux-job: task(s) exited with exit code 1\n", root_ranks=(3,)),
    Excerpt("mpi_abort", "MPI: a rank calls abort after its error", "user_exception", RESTART,
        steps(2, 8, "[1,0]<stdout>: step {n} loss {loss:.3f}") + "[1,3]<stderr>: Traceback (most "
                                                                 "recent call last):\n[1,3]<stderr>:   File \"/app/train.py\", line 44, in main\n[1,3]<stderr>:     reward = score(batch)\n[1,3]<stderr>: ZeroDivisionError: float division by zero\n--------------------------------------------------------------------------\nMPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD with errorcode 1.\n", root_ranks=(3,)),
    Excerpt("mpi_hostkey", "mpirun: a host that cannot be reached", "rendezvous_error", RESTART,
        "ssh: connect to host gpu-17 port 22: No route to "
        "host\n--------------------------------------------------------------------------\nORTE "
        "was unable to reliably start one or more daemons.\nThis usually is caused by:\n* not "
        "finding the required libraries and/or binaries on one or more nodes.\n"),
    # ---- Kubernetes, clouds, containers ----
    Excerpt("k8s_liveness", "Kubernetes: a probe ends a job that hangs", "hang", RESTART,
        steps(5, 9) + "Warning  Unhealthy  2m (x6 over 5m)  kubelet  Liveness probe failed: no "
                      "progress for 300s\nNormal   Killing    2m  kubelet  Container trainer "
                      "failed liveness probe, will be restarted\n"),
    Excerpt("k8s_secret", "Kubernetes: a secret that is not there", "bad_config", STOP,
        "Warning  Failed  12s (x8 over 98s)  kubelet  Error: secret \"wandb-key\" not "
        "found\nState: Waiting\n  Reason: CreateContainerConfigError\n"),
    Excerpt("k8s_unauthorized_pull", "Kubernetes: an image that may not be pulled", "bad_config", STOP,
        "Warning  Failed  8s  kubelet  Failed to pull image \"registry.local/train:9\": failed to "
        "authorize: failed to fetch anonymous token: 401 Unauthorized\nWarning  Failed  8s  "
        "kubelet  Error: ImagePullBackOff\n"),
    Excerpt("k8s_scaledown", "Kubernetes: the autoscaler takes a spot node", "preempted", RESTART,
        steps(100, 130) + "Normal   ScaleDown  3s  cluster-autoscaler  deleting pod for node "
                          "scale down\nNormal   Killing  3s  kubelet  Stopping container "
                          "trainer\nTerminated\n"),
    Excerpt("sagemaker_spot", "SageMaker: spot capacity is gone", "preempted", RESTART,
        steps(400, 440, "[1,mpirank:0,algo-1]<stdout>:step {n} loss {loss:.3f}") + "Training job stopped: Managed Spot Training job interrupted; instance was reclaimed (spot interruption)\n"),
    Excerpt("docker_entry", "docker: a program that is not in the image", "missing_file", STOP,
        "docker: Error response from daemon: failed to create task for container: failed to "
        "create shim task: OCI runtime create failed: runc create failed: unable to start "
        "container process: exec: \"torchrun\": executable file not found in $PATH: unknown.\n"),
    Excerpt("enroot_mount", "Pyxis: a mount that is not there", "missing_file", STOP,
        "pyxis: container start failed with error code: 1\npyxis: printing enroot log "
        "file:\npyxis:     enroot-mount: failed to mount: /lustre/datasets/c4 at "
        "/run/enroot/overlay/data: No such file or directory\npyxis:     [ERROR] "
        "/etc/enroot/hooks.d/10-system.sh exited with return code 1\nsrun: error: c1: task 0: "
        "Exited with exit code 1\n"),
    Excerpt("compose_137", "docker compose: killed, nobody says by whom", "killed", RESTART,
        steps(10, 30, "trainer-1  | step {n} loss {loss:.3f}") + "trainer-1 exited with code "
                                                                 "137\n"),
    # ---- devices, links, kernels ----
    Excerpt("xid_94", "driver: a contained ECC error", "hardware_fault", RESTART,
        steps(800, 812) + traceback("RuntimeError: CUDA error: uncorrectable ECC error "
                                    "encountered", "/app/train.py:main:loss.item()"), kernel="[88123.1] NVRM: Xid (PCI:0000:9d:00): 94, pid=4412, name=python, Contained: SM (0x1). RST: No, D-RST: No\n"),
    Excerpt("nvml_lost", "a GPU that needs a reset", "hardware_fault", RESTART,
        "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n" + traceback("RuntimeError: CUDA error: unknown error", "/app/train.py:main:torch.cuda.set_device(local_rank)")),
    Excerpt("amd_vm_fault", "amdgpu: a page fault of a kernel", "illegal_access", RESTART,
        steps(60, 66) + "Memory access fault by GPU node-3 (Agent handle: 0x55d1) on address "
                        "0x7f2a00000000. Reason: Page not present or supervisor "
                        "privilege.\nAborted (core dumped)\n"),
    Excerpt("amd_ras", "amdgpu: poison is consumed", "hardware_fault", RESTART,
        steps(60, 66), kernel="[99.1] amdgpu 0000:83:00.0: amdgpu: {4}[Hardware Error]: event "
                              "severity: fatal\n[99.2] amdgpu 0000:83:00.0: amdgpu: Uncorrectable "
                              "hardware error detected, poison consumption, GPU reset is "
                              "needed\n", ends=(RankEnd(3, signal=6),), root_ranks=(3,)),
    Excerpt("gaudi_device", "Gaudi: the device is not acquired", "hardware_fault", RESTART,
        traceback("RuntimeError: synStatus=26 [Generic failure] Device acquire failed.", "/app/train.py:main:model.to('hpu')")),
    Excerpt("neuron_nrt", "Neuron: a core in error", "hardware_fault", RESTART,
        steps(90, 99) + "2026-Jul-01 10:00:00.1  4412:4499  ERROR  NRT:nrt_infodump  Neuron "
                        "runtime information\n2026-Jul-01 10:00:00.2  4412:4499  ERROR  "
                        "TDRV:exec_consume_infer_status_notifications  Uncorrectable HBM memory "
                        "error (SRAM/HBM UE) on nd3 nc1\n"),
    Excerpt("roce_gid", "RoCE: a port without an address", "link_fault", RESTART,
        "gpu-17:4412:4499 [3] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_modify_qp failed with "
        "error No such device\ngpu-17:4412:4499 [3] NCCL INFO transport/net_ib.cc:1220 -> 2\n" + traceback("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error (run with NCCL_DEBUG=INFO for details)", "/app/train.py:main:dist.all_reduce(t)")),
    Excerpt("mlx_link_down", "a port goes down under the job", "link_fault", RESTART,
        steps(33, 60) + "gpu-17:4412:4499 [3] transport/net_ib.cc:296 NCCL WARN NET/IB : mlx5_2:1 "
                        "Got async event : port error\n", kernel="[10.1] mlx5_core 0000:5e:00.0 "
                                                                 "ib2: Link down\n"),
    Excerpt("mce_host", "a machine check on the host", "hardware_fault", RESTART,
        steps(33, 60), kernel="[4412.1] mce: [Hardware Error]: Machine check events "
                              "logged\n[4412.2] mce: Uncorrected hardware memory error in "
                              "user-access at 3f2a01000\n[4412.3] Memory failure: 0x3f2a01: "
                              "Sending SIGBUS to python:4412 due to hardware memory corruption\n", ends=(RankEnd(0, signal=7),), root_ranks=(0,)),
    # ---- storage, data ----
    Excerpt("beegfs_io", "BeeGFS: a target is away", "storage_fault", RESTART,
        steps(210, 240) + traceback("OSError: [Errno 121] Remote I/O error: "
                                    "'/beegfs/ds/shard_0021.bin'", "/app/train.py:main:for b in "
                                                                   "loader", "/app/data.py:__getitem__:self.f.read(n)")),
    Excerpt("azure_503", "Azure blobs: the server is busy", "storage_fault", RESTART,
        steps(210, 240) + traceback("azure.core.exceptions.HttpResponseError: The server is "
                                    "busy.\nErrorCode:ServerBusy\nContent: <?xml "
                                    "version=\"1.0\"?>", "/app/train.py:main:save(step)", "/app/ckpt.py:save:blob.upload_blob(f)")),
    Excerpt("inode_full", "no inodes left", "disk_full", STOP,
        traceback("OSError: [Errno 28] No space left on device: '/scratch/cache/tok/000001.lock'", "/app/train.py:main:build_cache()", "/app/data.py:build_cache:open(lock, 'w')")),
    Excerpt("arrow_invalid", "a table that is cut off", "data_error", RESTART,
        steps(3, 40) + traceback("pyarrow.lib.ArrowInvalid: Not an Arrow file", "/app/train.py:main:for b in loader", "/app/data.py:__iter__:reader = pa.ipc.open_file(src)")),
    Excerpt("hf_lock_perm", "a cache of somebody else, on every rank", "permission_denied", STOP,
        ranks={r: traceback("PermissionError: [Errno 13] Permission denied: "
                            "'/shared/hf/hub/.locks/models--x/abc.lock'", "/app/train.py:main:AutoModel.from_pretrained(name)", f"{_S}/filelock/_unix.py:_acquire:os.open(self.lock_file, flags)") for r in range(4)}),
    # ---- torch and around it ----
    Excerpt("fsdp_mixed", "FSDP: a model that it does not take", "user_exception", RESTART,
        traceback("ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and "
                  "torch.float32", "/app/train.py:main:model = FSDP(model)", f"{_S}/torch/distributed/fsdp/_flat_param.py:_validate_tensors_to_flatten:raise ValueError(")),
    Excerpt("vllm_ctx", "vLLM in a training loop: a length it cannot serve", "bad_config", STOP,
        traceback("ValueError: User-specified max_model_len (131072) is greater than the derived "
                  "max_model_len (max_position_embeddings=32768). To allow overriding this "
                  "maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1", "/app/grpo.py:main:llm = LLM(cfg.model)", f"{_S}/vllm/config.py:_get_and_verify_max_len:raise ValueError(")),
    Excerpt("triton_cc", "Triton: no compiler in the image", "bad_config", STOP,
        traceback("RuntimeError: Failed to find C compiler. Please specify via CC environment "
                  "variable or set triton.knobs.build.impl.", "/app/train.py:main:out = model(x)", f"{_S}/triton/runtime/build.py:_build:raise RuntimeError(")),
    Excerpt("inductor_ptx", "a toolchain older than the device", "bad_config", RESTART,
        steps(0, 0, "compiling ...") + traceback("torch._inductor.exc.InductorError: PTXASError: "
                                                 "PTXAS error: Internal Triton PTX codegen "
                                                 "error\nptxas fatal   : Value 'sm_103a' is not "
                                                 "defined for option 'gpu-name'", "/app/train.py:main:out = model(x)")),
    Excerpt("dataloader_bus", "loader workers without shared memory", "host_oom", RESTART,
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
        "shared memory (shm).\n" + traceback("RuntimeError: DataLoader worker (pid 4499) is "
                                             "killed by signal: Bus error. It is possible that "
                                             "dataloader's workers are out of shared memory. "
                                             "Please try to raise your shared memory limit.", "/app/train.py:main:for b in loader")),
    Excerpt("gloo_peer", "gloo: a peer is gone after many steps", "network_loss", RESTART,
        steps(500, 540) + traceback("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.4.0.9]:33112", "/app/train.py:main:dist.all_reduce(t)")),
    Excerpt("nothing_but_bar", "a log that ends in a bar", "unknown", UNKNOWN,
        "Loading checkpoint shards: 100%|##########| 8/8 [00:31<00:00,  3.9s/it]\n  7%|7         |"
        " 301/4000 [05:01<1:01:38,  1.00s/it]"),
)  # fmt: skip
