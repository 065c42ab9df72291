"""A sixth set: its truth was written before it was looked at, once. Two in three are not torch:
other accelerators, launchers, clouds, stores and frameworks.
"""

from aorta.attribution import RankEnd
from benchmarks.faults.field import RESTART, STOP, UNKNOWN, Excerpt, steps, traceback

_S = "/opt/venv/lib/python3.11/site-packages"

EXCERPTS: tuple[Excerpt, ...] = (
    # ---- other accelerators: Neuron, Gaudi, XPU, TPU ----
    Excerpt("neuron_driver", "Neuron: no driver on the node", "bad_config", RESTART,
        "2026-Mar-29 07:07:29.0082    11:11    ERROR   NRT:nrt_init      Unable to determine "
        "Neuron Driver version. Please check aws-neuron-dkms package is installed.\n" + traceback("RuntimeError: The PyTorch Neuron Runtime could not be initialized. Neuron Driver issues are logged to your system logs. See the Neuron Runtime's troubleshooting guide for help on this topic", "/app/train.py:main:device = xm.xla_device()")),
    Excerpt("neuron_hw", "Neuron: an uncorrectable memory error", "hardware_fault", RESTART,
        steps(410, 440) + "2026-Mar-29 07:07:29.0082 58093:58093 ERROR  "
                          "TDRV:exec_consume_tpb_status_notifications  (FATAL-RT-UNDEFINED-STATE) "
                          "missing collectives status on Neuron Device 3 NC 1, model "
                          "model.neff\n2026-Mar-29 07:07:30.0011 58093:58093 ERROR  "
                          "NRT:nrt_execute  NEURON_HW_ERR=HBM_UE: uncorrectable memory error on "
                          "device 3, instance=i-0a1b\n"),
    Excerpt("gaudi_compile", "Gaudi: a graph that does not compile on all ranks", "user_exception", RESTART,
        ranks={r: traceback(f"RuntimeError: [Rank:{r}] FATAL ERROR :: MODULE:PT_BRIDGE Exception "
                            "in Launch thread...\nCheck $HABANA_LOGS/ for details\nGraph compile "
                            "failed. synStatus=synStatus 26 [Generic failure].", "/app/train.py:main:loss.item()") for r in (0, 1)}),
    Excerpt("gaudi_device_gone", "Gaudi: a device that cannot be taken", "hardware_fault", RESTART,
        traceback("RuntimeError: synStatus=8 [Device not found] Device acquire failed.", "/app/train.py:main:model = model.to('hpu')")),
    Excerpt("xpu_lost", "XPU: the device is lost in the backward pass", "hardware_fault", RESTART,
        steps(12, 30) + traceback("RuntimeError: level_zero backend failed with error: 20 "
                                  "(UR_RESULT_ERROR_DEVICE_LOST)", "/app/train.py:main:loss.backward()", f"{_S}/torch/_tensor.py:backward:torch.autograd.backward(")),
    Excerpt("xpu_memory", "XPU: device memory after many steps", "device_oom", RESTART,
        steps(900, 930) + traceback("torch.OutOfMemoryError: XPU out of memory. Tried to allocate "
                                    "3.50 GiB. GPU 0 has a total capacity of 63.98 GiB. Of the "
                                    "allocated memory 58.20 GiB is allocated by PyTorch", "/app/train.py:main:loss.backward()")),
    Excerpt("xpu_loader", "XPU: a library of another release", "import_error", STOP,
        traceback("ImportError: /opt/intel/oneapi/compiler/2025.1/lib/libur_loader.so.0: version "
                  "`LIBUR_LOADER_0.10' not found (required by libsycl.so.8)", "/app/train.py:<module>:import torch")),
    Excerpt("tpu_fatal", "TPU: a chip reports a fatal error", "hardware_fault", RESTART,
        steps(7000, 7020, "(train_lm pid=39298, ip=10.130.0.55) I0827 23:43:39.1 39298 "
                          "train.py:81] step {n} loss {loss:.3f}") + "(train_lm pid=39298, "
                                                                     "ip=10.130.0.55) E0827 "
                                                                     "23:43:41.200122   39475 "
                                                                     "synchronous_driver.cc:820] "
                                                                     "[/dev/accel0 tpu1013:pe1:0] "
                                                                     "!!!! FATAL ERROR !!!! for "
                                                                     "[/dev/accel0 tpu1013:pe1:0] "
                                                                     ", fatal_error: true\n(train_lm pid=39298, ip=10.130.0.55) E0827 23:43:41.200512   39676 program_continuator.cc:556] 1x0x2_BC1: *** An Unknown error has occurred, all pending programs will fail\n"),
    Excerpt("tpu_slice", "TPU multislice: a slice reports a driver error", "hardware_fault", RESTART,
        steps(88, 99, "I0511 18:18:48.1 915 train.py:70] completed step: {n}, seconds: 4.1, loss: "
                      "{loss:.3f}") + "E0511 18:18:50.796514     915 session_master.cc:505] "
                                      "Session is failing with the following status: Session "
                                      "master detected TPU session error from worker "
                                      "tpu-job-15:8471.\nE0511 18:18:50.796852     915 "
                                      "tpunetd_client.cc:311] Detected failure "
                                      "SLICE_FAILURE_CHIP_DRIVER_ERROR in session e6c8; Start "
                                      "failure handling\n"),
    Excerpt("maxtext_mesh", "MaxText: parallelism that does not fit the devices", "bad_config", STOP,
        traceback("AssertionError: Number of devices 8 does not match the product of the "
                  "parallelism 16", "/app/MaxText/train.py:main:train(config)", "/app/MaxText/max_utils.py:create_device_mesh:assert np.prod(parallelism) == num_devices")),
    Excerpt("maxtext_unknown_key", "MaxText: a key on the command line that no config holds", "bad_config", STOP,
        traceback("ValueError: Key stpes was passed at the command line but isn't in config.", "/app/MaxText/train.py:main:pyconfig.initialize(argv)", "/app/MaxText/pyconfig.py:__init__:raise ValueError(")),
    # ---- JAX ----
    Excerpt("jax_orbax_missing", "JAX: a checkpoint step that is not there", "missing_file", STOP,
        traceback("FileNotFoundError: Checkpoint does not exist at "
                  "gs://bucket/run0/checkpoints/4000/items.", "/app/train.py:main:state = "
                                                              "mngr.restore(4000)", f"{_S}/orbax/checkpoint/checkpointer.py:restore:raise FileNotFoundError(")),
    Excerpt("flax_params", "Flax: a module called without its parameters", "user_exception", RESTART,
        traceback("flax.errors.ScopeParamNotFoundError: Could not find parameter named \"kernel\" "
                  "in scope \"/Dense_0\".", "/app/train.py:main:out = model.apply(vars, x)")),
    Excerpt("jax_ptxas", "JAX: a ptxas that is too old", "bad_config", RESTART,
        traceback("jaxlib.xla_extension.XlaRuntimeError: UNIMPLEMENTED: /usr/local/cuda/bin/ptxas "
                  "ptxas too old. Falling back to the driver to compile is disabled.", "/app/train.py:main:state = init(key)")),
    # ---- TensorFlow and others ----
    Excerpt("tf_record", "TensorFlow: a record that is cut off", "data_error", RESTART,
        "Epoch 2/30\n" + traceback("tensorflow.python.framework.errors_impl.DataLossError: "
                                   "{{function_node __wrapped__IteratorGetNext}} truncated record "
                                   "at 8123456 [Op:IteratorGetNext]", "/app/train.py:main:model.fit(ds)")),
    Excerpt("tf_cuda_lib", "TensorFlow: graph mode cannot find an algorithm", "user_exception", RESTART,
        traceback("tensorflow.python.framework.errors_impl.UnimplementedError: Graph execution "
                  "error:\n\nCast string to float is not supported\n\t [[{{node loss/Cast}}]] "
                  "[Op:__inference_train_function_1]", "/app/train.py:main:model.fit(ds)")),
    Excerpt("mxnet_shape", "MXNet: shapes that do not fit", "shape_mismatch", STOP,
        traceback("mxnet.base.MXNetError: Error in operator fc1: [10:00:00] "
                  "src/operator/nn/fully_connected.cc:93: Check failed: axis < ndim: Shape "
                  "inconsistent, Provided = [128,512], inferred shape=[128,1024]", "/app/train.py:main:mod.bind(data_shapes)")),
    Excerpt("catboost_param", "CatBoost: a parameter it does not know", "bad_config", STOP,
        traceback("_catboost.CatBoostError: catboost/private/libs/options/json_helper.h:173: "
                  "Unknown option {bootstrap_typ} with value \"Bernoulli\"", "/app/train.py:main:model.fit(pool)", "/app/lib/_catboost.pyx:_CatBoost._train:raise CatBoostError(")),
    Excerpt("lightgbm_gpu", "LightGBM: built without GPU support", "bad_config", STOP,
        "[LightGBM] [Fatal] GPU Tree Learner was not enabled in this build.\nPlease recompile "
        "with CMake option -DUSE_GPU=1\n" + traceback("lightgbm.basic.LightGBMError: GPU Tree "
                                                      "Learner was not enabled in this "
                                                      "build.\nPlease recompile with CMake option "
                                                      "-DUSE_GPU=1", "/app/train.py:main:lgb.train(params, ds)")),
    Excerpt("rust_panic", "a Rust trainer that panics", "abort", RESTART,
        steps(40, 60) + "thread 'main' panicked at src/optim.rs:118:9:\nindex out of bounds: the "
                        "len is 4096 but the index is 4096\nnote: run with `RUST_BACKTRACE=1` "
                        "environment variable to display a backtrace\n", ends=(RankEnd(0, exit_code=101),)),
    Excerpt("mmengine_registry", "MMEngine: a class that is in no registry", "bad_config", STOP,
        traceback("KeyError: 'MyHead is not in the mmdet::model registry. Please check whether "
                  "the value of `MyHead` is correct or it was registered as expected.'", "/app/tools/train.py:main:runner = Runner.from_cfg(cfg)", f"{_S}/mmengine/registry/build_functions.py:build_from_cfg:raise KeyError(")),
    Excerpt("detectron_dataset", "Detectron2: a dataset that is not registered", "bad_config", STOP,
        traceback("KeyError: \"Dataset 'coco_mine_train' is not registered! Available datasets "
                  "are: coco_2014_train, coco_2017_val\"", "/app/train.py:main:trainer = "
                                                           "DefaultTrainer(cfg)", f"{_S}/detectron2/data/catalog.py:get:raise KeyError(")),
    Excerpt("fairseq_dict", "fairseq: a dictionary that is not there", "missing_file", STOP,
        "2026-05-01 10:00:00 | INFO | fairseq_cli.train | task: translation\n" + traceback("FileNotFoundError: [Errno 2] No such file or directory: 'data-bin/dict.en.txt'", "/app/fairseq_cli/train.py:main:task = tasks.setup_task(cfg.task)")),
    # ---- fine-tuning and RL stacks ----
    Excerpt("axolotl_packing", "axolotl: a split too small for packing", "bad_config", STOP,
        traceback("ValueError: eval dataset split is too small for sample_packing. You should set "
                  "`eval_sample_packing: False`.", "/app/axolotl/cli/train.py:do_cli:do_train(cfg)", "/app/axolotl/utils/data.py:prepare_dataset:raise ValueError(")),
    Excerpt("axolotl_schema", "axolotl: a config that its schema refuses", "bad_config", STOP,
        traceback("pydantic_core._pydantic_core.ValidationError: 1 validation error for "
                  "AxolotlInputConfig\nlora_target_linear\n  Input should be a valid boolean "
                  "[type=bool_type, input_value='yess', input_type=str]", "/app/axolotl/cli/train.py:do_cli:cfg = load_cfg(config)", "/app/axolotl/utils/config.py:validate_config:AxolotlInputConfig(**cfg)")),
    Excerpt("bnb_launch", "bitsandbytes: a launch with a wrong configuration", "illegal_access", RESTART,
        "[2026-04-17 00:08:54,225] [INFO] [axolotl.load_model:354] [PID:808742] [RANK:2] patching "
        "with flash attention for sample packing\nError invalid configuration argument at line "
        "119 in file /src/csrc/ops.cu\n", ends=(RankEnd(2, exit_code=1),)),
    Excerpt("trl_columns", "TRL: a dataset without the columns it needs", "user_exception", RESTART,
        traceback("KeyError: 'chosen'", "/app/dpo.py:main:trainer = DPOTrainer(model, args)", f"{_S}/trl/trainer/dpo_trainer.py:tokenize_row:chosen = feature['chosen']", f"{_S}/datasets/formatting/formatting.py:__getitem__:value = self.data[key]")),
    Excerpt("peft_base", "PEFT: an adapter of another base model", "checkpoint_mismatch", STOP,
        traceback("RuntimeError: Error(s) in loading state_dict for PeftModelForCausalLM:\n\tsize "
                  "mismatch for base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight: copying a param with shape torch.Size([4096, 8]) from checkpoint, the shape in current model is torch.Size([5120, 8]).", "/app/sft.py:main:model = PeftModel.from_pretrained(base, adapter)", f"{_S}/torch/nn/modules/module.py:load_state_dict:raise RuntimeError(")),
    Excerpt("unsloth_quota", "a hub that limits requests", "network_loss", RESTART,
        traceback("huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for "
                  "url: https://huggingface.co/api/models/x/y", "/app/sft.py:main:model = "
                                                                "load(name)", f"{_S}/huggingface_hub/utils/_http.py:hf_raise_for_status:raise _format(HfHubHTTPError, str(e), response)")),
    Excerpt("nemo_exp_manager", "NeMo: a directory to resume from that is not there", "missing_file", STOP,
        "[NeMo W 2026-05-01 10:00:00 exp_manager:708] There were no checkpoints found in "
        "checkpoint_dir\nError executing job with overrides: "
        "['exp_manager.resume_if_exists=true']\n" + traceback("nemo.utils.exp_manager.NotFoundError: There were no checkpoints found in checkpoint_dir or no checkpoint folder at checkpoint_dir :/results/ckpt. Cannot resume.", "/app/pretrain.py:main:exp_manager(trainer, cfg.exp_manager)", f"{_S}/nemo/utils/exp_manager.py:check_resume:raise NotFoundError(")),
    Excerpt("composer_boxed", "Composer: a resume with a box around its traceback", "checkpoint_mismatch", STOP,
        "[rank118]: ╭───────────────────── Traceback (most recent call last) "
        "──────────────────────╮\n[rank118]: │ /home/u/llm-foundry/scripts/train/train.py:786 in "
        "<module>                     │\n[rank118]: │ ❱ 786 │   main(cfg)                         "
        "                                 │\n[rank118]: │ "
        "/home/u/venv/lib/python3.11/site-packages/composer/utils/checkpoint.py:890 in "
        "load_model_state │\n[rank118]: │ ❱ 890 │   raise RuntimeError(                           "
        "                       │\n[rank118]: "
        "╰──────────────────────────────────────────────────────────────────────────────╯\n[rank118]: RuntimeError: Failed to load checkpoint due to missing or unexpected keys in state_dict: missing ['transformer.blocks.32.norm_1.weight']\n" * 1),
    Excerpt("colossal_kill", "ColossalAI: one local rank killed while shards load", "killed", RESTART,
        "Loading checkpoint shards:  67%|████████████      | 4/6 [00:27<00:13,  "
        "6.94s/it]\nWARNING:torch.distributed.elastic.multiprocessing.api:Sending process 812914 "
        "closing signal SIGTERM\nERROR:torch.distributed.elastic.multiprocessing.api:failed "
        "(exitcode: -9) local_rank: 3 (pid: 812917) of binary: /usr/bin/python3\n" + traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n============================================================\ntrain_sft.py FAILED\n------------------------------------------------------------", "/usr/bin/torchrun:main:run(args)"), root_ranks=(3,)),
    # ---- torch ----
    Excerpt("fsdp_world", "FSDP: a sharded checkpoint of another world size", "checkpoint_mismatch", STOP,
        "".join(f"[rank{r}]: " + line + "\n" for r in (0, 1) for line in traceback("ValueError: Sharded checkpoint was saved with world size 16, which does not match the current world size 8", "/app/train.py:main:load_checkpoint(model, path)", "/app/ckpt.py:load_checkpoint:raise ValueError(").splitlines())),
    Excerpt("nccl_version", "NCCL: ranks with different releases", "bad_config", RESTART,
        traceback("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2005, "
                  "internal error - please report this issue to the NCCL developers, NCCL version "
                  "2.21.5\nncclInternalError: Internal check failed.\nLast error:\nMismatched "
                  "NCCL version detected : rank 0 2.21.5 rank 8 2.19.3", "/app/train.py:main:dist.barrier()")),
    Excerpt("ofi_error", "EFA: a request that completes with an error", "link_fault", RESTART,
        steps(600, 640) + "algo-1:462:611 [0] ofi_process_cq:249 NCCL WARN NET/OFI Request 0x7f "
                          "completed with error. RC: 21. Error: unknown error. Completed length: "
                          "0, Request: { buffer_index: 2 }\n" + traceback("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1269, unhandled system error, NCCL version 2.18.3\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.", "/app/train.py:main:loss.backward()")),
    Excerpt("compile_graph_break", "torch.compile: a backend that fails", "user_exception", RESTART,
        steps(1, 3) + traceback("torch._dynamo.exc.BackendCompilerFailed: backend='inductor' "
                                "raised:\nLoweringException: AttributeError: 'View' object has no "
                                "attribute 'freeze_layout'", "/app/train.py:main:out = model(x)")),
    Excerpt("dtensor_mixed", "DTensor: mixed tensors", "user_exception", RESTART,
        traceback("RuntimeError: aten.add.Tensor: got mixed torch.Tensor and DTensor, need to "
                  "convert all torch.Tensor to DTensor before calling distributed operators!", "/app/train.py:main:clip_grad_norm_(model)")),
    Excerpt("store_hostname", "torchrun: a name that cannot be resolved", "rendezvous_error", RESTART,
        "[W socket.cpp:601] [c10d] The IPv6 network addresses of (trainer-0.trainer, 29500) "
        "cannot be retrieved (gai error: -2 - Name or service not known).\n" * 4 + traceback("torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (trainer-0.trainer, 29500). The IPv6 network addresses of (trainer-0.trainer, 29500) cannot be retrieved (gai error: -2 - Name or service not known).", "/app/train.py:main:dist.init_process_group('nccl')")),
    Excerpt("cublas_arch", "torch: a card the build does not know", "bad_config", STOP,
        traceback("RuntimeError: CUDA error: no kernel image is available for execution on the "
                  "device\nCUDA kernel errors might be asynchronously reported at some other API "
                  "call.", "/app/train.py:main:model = build(cfg).cuda()")),
    Excerpt("oom_first_batch", "torch: the model does not fit while it is built", "device_oom", STOP,
        ranks={r: traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
                            f"448.00 MiB. GPU {r} has a total capacity of 79.15 GiB of which "
                            "201.00 MiB is free.", "/app/train.py:main:model = build_model(cfg)", "/app/model.py:build_model:return Model(cfg).cuda()") for r in (0, 1)}, ends=(RankEnd(0, exit_code=1), RankEnd(1, exit_code=1))),
    Excerpt("one_rank_file", "torch: a file that one of four ranks cannot find", "missing_file", RESTART,
        ranks={0: steps(1, 3) + "RuntimeError: Connection closed by peer [10.0.0.7]:29500\n", 1: steps(1, 3) + "RuntimeError: Connection closed by peer [10.0.0.7]:29500\n", 2: steps(1, 3) + "RuntimeError: Connection closed by peer [10.0.0.7]:29500\n", 3: steps(1, 3) + traceback("FileNotFoundError: [Errno 2] No such file or directory: '/local/cache/shard_003.bin'", "/app/train.py:main:data = read(p)")}, root_ranks=(3,)),
    Excerpt("late_import", "torch: a module that is imported at the first evaluation", "import_error", RESTART,
        steps(4000, 4100) + traceback("ModuleNotFoundError: No module named 'sacrebleu'", "/app/train.py:main:evaluate()", "/app/eval.py:evaluate:import sacrebleu")),
    # ---- Slurm, PBS, MPI, containers ----
    Excerpt("pyxis_bash", "pyxis: an image without a shell, on both nodes", "missing_file", STOP,
        "".join("slurmstepd: error: pyxis: container start failed with error code: "
                "1\nslurmstepd: error: pyxis: printing contents of log file ...\nslurmstepd: "
                "error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file "
                "or directory\nslurmstepd: error: pyxis: couldn't start container\nslurmstepd: "
                "error: spank: required plugin spank_pyxis.so: task_init() failed with "
                f"rc=-1\nsrun: error: hpc-pg0-{n + 1}: task {n}: Exited with exit code 1\n" for n in (1, 0))),
    Excerpt("pyxis_run_dir", "pyxis: a directory that the node does not let it make", "permission_denied", RESTART,
        "slurmstepd: error: pyxis: child 12004 failed with error code: 1\nslurmstepd: error: "
        "pyxis: failed to import docker image\nslurmstepd: error: pyxis: printing contents of log "
        "file ...\nslurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': "
        "Permission denied\nslurmstepd: error: spank: required plugin spank_pyxis.so: "
        "task_init_privileged() failed with rc=-1\nsrun: error: vm-0001: task 0: Exited with exit "
        "code 1\n"),
    Excerpt("srun_launch_timeout", "Slurm: nodes that do not answer the launch", "network_loss", RESTART,
        "srun: error: slurm_receive_msgs: [[n1.dom]:6818] failed: Socket timed out on send/recv "
        "operation\nsrun: error: Task launch for StepId=96.0 failed on node n1: Socket timed out "
        "on send/recv operation\nsrun: error: Application launch failed: Socket timed out on "
        "send/recv operation\nsrun: Job step aborted\n"),
    Excerpt("srun_mixed_end", "srun -K: task 5 crashes, the others are ended", "segfault", RESTART,
        steps(80, 99, "{n}: 0: step {n} loss {loss:.3f}") + "srun: error: g07: task 5: "
                                                            "Segmentation fault (core "
                                                            "dumped)\nsrun: Terminating "
                                                            "StepId=8812.0\nslurmstepd-g06: "
                                                            "error: *** STEP 8812.0 ON g06 "
                                                            "CANCELLED AT 2026-06-01T10:00:00 "
                                                            "***\nsrun: error: g06: tasks 0-3: "
                                                            "Killed\nsrun: error: g07: tasks "
                                                            "4,6-7: Killed\n", root_ranks=(5,)),
    Excerpt("mpi_abort", "MPI: one rank calls abort with its own code", "unknown", UNKNOWN,
        steps(5, 25) + "--------------------------------------------------------------------------\nMPI_ABORT was invoked on rank 6 in communicator MPI_COMM_WORLD\nwith errorcode 77.\n\nNOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n--------------------------------------------------------------------------\n"),
    Excerpt("mpi_hydra_kill", "MPICH: the process manager tells of a kill", "killed", RESTART,
        steps(5, 25) + "===================================================================================\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 4412 RUNNING AT c12\n=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n===================================================================================\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"),
    Excerpt("condor_hold", "HTCondor: held for memory", "host_oom", RESTART,
        steps(50, 60) + "012 (4412.000.000) 2026-06-01 10:00:00 Job was held.\n\tError from "
                        "slot1_4@exec12: Job has gone over cgroup memory limit of 16384 "
                        "megabytes. Peak usage: 16390 megabytes.\n\tCode 34 Subcode 0\n"),
    Excerpt("podman_limit", "podman: no room for the layers of the image", "disk_full", STOP,
        "Error: writing blob: adding layer with blob \"sha256:77\": processing tar file(write "
        "/usr/lib/libcublasLt.so.12: no space left on device): exit status 1\n"),
    # ---- Kubernetes and clouds ----
    Excerpt("k8s_config_map", "Kubernetes: a config map that is not there", "bad_config", STOP,
        "  Warning  Failed     12s (x4 over 50s)  kubelet  Error: configmap \"train-config\" not "
        "found\n  Normal   Pulled     12s  kubelet  Container image already present on "
        "machine\nStatus: CreateContainerConfigError\n"),
    Excerpt("k8s_node_drain", "Kubernetes: a node is drained", "preempted", RESTART,
        steps(700, 720) + "{\"level\":\"warning\",\"ts\":\"2026-06-01T10:00:00Z\",\"msg\":\"pod "
                          "trainer-2 is being deleted: node gke-a100-7 is being drained for an "
                          "upgrade\"}\nReceived signal 15, exiting\n"),
    Excerpt("kueue_evicted", "Kueue: the workload is evicted for another", "preempted", RESTART,
        steps(700, 720) + "Type    Reason    Age  From    Message\nNormal  Preempted  9s  "
                          "kueue-admission  Preempted to accommodate a workload (UID: 77) due to "
                          "prioritization in the ClusterQueue\n"),
    Excerpt("aws_batch_reclaim", "AWS Batch: the host is terminated", "preempted", RESTART,
        steps(70, 90) + "statusReason: Host EC2 (instance i-0a1b2c) terminated.\n"),
    Excerpt("sagemaker_capacity", "SageMaker: the algorithm fails with its own error", "bad_arguments", STOP,
        "AlgorithmError: ExecuteUserScriptError:\nExitCode 2\nErrorMessage \"usage: train.py [-h] "
        "[--epochs EPOCHS]\n train.py: error: unrecognized arguments: --epoch 3\"\nCommand "
        "\"/opt/conda/bin/python3.10 train.py --epoch 3\"\n"),
    Excerpt("vertex_quota", "Vertex AI: a quota that is used up", "bad_config", RESTART,
        "google.api_core.exceptions.ResourceExhausted: 429 The following quota metrics exceed "
        "quota limits: aiplatform.googleapis.com/custom_model_training_nvidia_h100_gpus\n"),
    # ---- storage ----
    Excerpt("gpfs_stale", "GPFS: the file system is unmounted under the job", "storage_fault", RESTART,
        steps(3000, 3020) + "mmfs: [X] File system gpfs1 unmounted by the system with return code "
                            "217 reason code 0\n" + traceback("OSError: [Errno 116] Stale file "
                                                              "handle: '/gpfs/run/ckpt/step_3000.pt'", "/app/train.py:main:save(state)")),
    Excerpt("s3_expired", "S3: a token that expires in the middle", "permission_denied", RESTART,
        steps(9000, 9020) + traceback("botocore.exceptions.ClientError: An error occurred "
                                      "(ExpiredToken) when calling the PutObject operation: The "
                                      "provided token has expired.", "/app/train.py:main:upload(ckpt)")),
    Excerpt("gcs_503", "GCS: the service is unavailable", "storage_fault", RESTART,
        steps(9000, 9020) + traceback("google.api_core.exceptions.ServiceUnavailable: 503 PUT "
                                      "https://storage.googleapis.com/upload/storage/v1/b/ckpts/o?uploadType=resumable: We encountered an internal error. Please try again.", "/app/train.py:main:blob.upload_from_filename(p)")),
    Excerpt("parquet_footer", "a Parquet file without its footer, read by one loader", "data_error", RESTART,
        steps(120, 140) + traceback("pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in "
                                    "footer. Either the file is corrupted or this is not a "
                                    "parquet file.", "/app/train.py:main:for batch in loader", "/app/data.py:__iter__:table = pq.read_table(p)")),
    Excerpt("nfs_root_squash", "NFS: a directory that root may not write", "permission_denied", STOP,
        ranks={r: traceback("PermissionError: [Errno 13] Permission denied: '/nfs/exp/run1/logs'", "/app/train.py:main:os.makedirs(cfg.log_dir)") for r in (0, 1)}, ends=(RankEnd(0, exit_code=1), RankEnd(1, exit_code=1))),
    # ---- drivers and links ----
    Excerpt("fabric_manager", "fabric manager: the switches are not set up", "hardware_fault", RESTART,
        "nv-fabricmanager[2211]: fatal NVSwitch error: failed to configure all the available GPUs "
        "or NVSwitches to route NVLink traffic. NVLink between GPUs are not available.\n" + traceback("RuntimeError: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized", "/app/train.py:main:torch.cuda.set_device(r)")),
    Excerpt("xid_94", "a contained memory error on one card", "hardware_fault", RESTART,
        ranks={0: steps(40, 60) + "RuntimeError: NCCL communicator was aborted on rank 0.\n", 1: steps(40, 60) + traceback("RuntimeError: CUDA error: uncorrectable ECC error encountered", "/app/train.py:main:loss.backward()")},
        kernel="[88123.4] NVRM: Xid (PCI:0000:9b:00): 94, pid=4412, name=python, Contained: SM "
               "(0x1). RST: No, D-RST: No\n", root_ranks=(1,)),
    Excerpt("ib_port_down", "InfiniBand: a port goes down under a job", "link_fault", RESTART,
        ranks={0: steps(40, 60) + "RuntimeError: NCCL communicator was aborted on rank 0.\n", 1: steps(40, 60) + "c3:771:802 [1] NCCL WARN NET/IB : mlx5_2:1 Got async event : port error\n" + traceback("torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error", "/app/train.py:main:loss.backward()")}, root_ranks=(1,)),
)  # fmt: skip
