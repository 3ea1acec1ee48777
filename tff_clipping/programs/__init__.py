"""Programs that train: clients, rounds, what is kept of them, and audits."""

from tff_clipping import tff_extra  # noqa: F401
from tff_clipping.interruption import Interrupted
from tff_clipping.programs.audit.canary_clients import (
  CanaryClients,
  CanarySampler,
  canary_ids,
)
from tff_clipping.programs.audit.run_audit import RunAudit
from tff_clipping.programs.checks.process_checks import check_process
from tff_clipping.programs.clients.client_sampling import (
  ClientSampler,
  FixedSizeSampler,
  GroupedPoissonSampler,
  PoissonSampler,
  RoundRobinSampler,
  build_private_sampler,
)
from tff_clipping.programs.clients.client_states import (
  ClientStates,
  DamagedStatesError,
)
from tff_clipping.programs.clients.client_store import (
  ClientStore,
  write_client_data,
  write_client_store,
)
from tff_clipping.programs.clients.store_files import ClientStoreError
from tff_clipping.programs.training.checkpoints import (
  Checkpoints,
  DamagedCheckpointError,
)
from tff_clipping.programs.training.metrics_files import (
  MetricsFiles,
  ReleaseMetrics,
)
from tff_clipping.programs.training.private_program import (
  PrivateProgram,
  build_private_program,
)
from tff_clipping.programs.training.private_rounds import (
  resume,
  run_private_round,
)
from tff_clipping.programs.training.round_metrics import flatten_metrics
from tff_clipping.programs.training.tff_loops import (
  OutcomeStates,
  PrivateProcess,
  RoundNumbers,
)
from tff_clipping.programs.training.training_program import (
  RoundError,
  StopReason,
  TrainingProgram,
  TrainingResult,
)
from tff_clipping.programs.training.update_records import UpdateRecords
from tff_clipping.programs.training.watchers import (
  AfterRounds,
  ClientsWork,
  Round,
  RoundWatcher,
)
from tff_clipping.storage_errors import StorageError

__all__ = [
  'AfterRounds',
  'CanaryClients',
  'CanarySampler',
  'Checkpoints',
  'ClientSampler',
  'ClientStates',
  'ClientStore',
  'ClientStoreError',
  'ClientsWork',
  'DamagedCheckpointError',
  'DamagedStatesError',
  'FixedSizeSampler',
  'GroupedPoissonSampler',
  'Interrupted',
  'MetricsFiles',
  'OutcomeStates',
  'PoissonSampler',
  'PrivateProcess',
  'PrivateProgram',
  'ReleaseMetrics',
  'Round',
  'RoundError',
  'RoundNumbers',
  'RoundRobinSampler',
  'RoundWatcher',
  'RunAudit',
  'StopReason',
  'StorageError',
  'TrainingProgram',
  'TrainingResult',
  'UpdateRecords',
  'build_private_program',
  'build_private_sampler',
  'canary_ids',
  'check_process',
  'flatten_metrics',
  'resume',
  'run_private_round',
  'write_client_data',
  'write_client_store',
]
