export { AgentOptions } from './api/agent-options.ts'
export { Agent, AgentDeploy, AgentVersion, DeployConfig, FileInput } from './api/agent-schemas.ts'
export {
  CHECKPOINT_REASONS,
  Checkpoint,
  CheckpointDiff,
  type CheckpointEventData,
  CheckpointId,
  CheckpointList,
  DiffQuery,
  ForkRequest,
  GarbageReport,
  GarbageRequest,
  ResumePath,
  RollbackRequest,
  WorkspaceUpload,
} from './api/checkpoint-schemas.ts'
export {
  AgentName,
  Env,
  ErrorReply,
  IsoTime,
  isRelativePath,
  Paging,
  RelativePath,
  SessionId,
} from './api/common-schemas.ts'
export { Credential, CredentialCreate, CredentialName, CredentialScheme } from './api/credential-schemas.ts'
export { ExecReply, ExecRequest } from './api/exec-schemas.ts'
export { FileEntry, FileList, FilesWrite, FileText } from './api/file-schemas.ts'
export {
  AcceptedReply,
  type DoneEventData,
  type EgressDeniedEventData,
  type ErrorEventData,
  EVENT_TYPES,
  EventList,
  type EventType,
  IdempotencyKey,
  InterruptReply,
  type LimitEventData,
  LogEntry,
  MessageList,
  MessageSend,
  SendQuery,
  type TurnEventData,
  type TurnReply,
} from './api/message-schemas.ts'
export type { Packages } from './api/package-schemas.ts'
export {
  PermissionAnswer,
  type PermissionEventData,
  PermissionRequest,
  PermissionResolution,
  PermissionSettings,
} from './api/permission-schemas.ts'
export { Health, Ready } from './api/platform-schemas.ts'
export {
  AgentConfig,
  BudgetLimits,
  CheckpointSettings,
  Limits,
  ModelUsage,
  Network,
  SessionPatch,
  sdkOptions,
} from './api/sandbox-settings.ts'
export { Session, SessionCreate, SessionList } from './api/session-schemas.ts'
export {
  DEFAULT_EXEC_TIMEOUT_MS,
  DEFAULT_HOST,
  DEFAULT_PORT,
  DEFAULT_TENANT,
  MAX_AGENT_BYTES,
  MAX_AGENT_FILES,
  MAX_CONTENT_BLOCKS,
  MAX_EXEC_OUTPUT_BYTES,
  MAX_EXEC_TIMEOUT_MS,
  MAX_FILE_BYTES,
  MAX_FILES_PER_REQUEST,
  MAX_JSON_BODY_BYTES,
  MAX_LINE_BYTES,
  MAX_MESSAGE_CHARS,
  MAX_OUTSTANDING_COMMANDS,
  MAX_PATH_CHARS,
  STUCK_CLIENT_TIMEOUT_MS,
} from './constants.ts'
export { AshError, ERRORS, type ErrorCode, type ErrorDetail, isAshError, isErrorCode } from './errors.ts'
export {
  type BridgeCommand,
  type BridgeEvent,
  bridgeError,
  decodeCommand,
  decodeEvent,
  type ExecResult,
  encodeLine,
  encodeMessage,
  LineSplitter,
  type MessageEvent,
  type PermissionDecision,
  type PermissionRequestEvent,
  ProtocolError,
  type SessionSetup,
  type TerminalEvent,
  type TurnDone,
  UNSOLICITED,
} from './protocol.ts'
export {
  canFollow,
  SANDBOX_STATES,
  type SandboxState,
  SESSION_STATUSES,
  type SessionStatus,
  statusesBefore,
} from './session-state.ts'
export { formatSSE, parseSSE, type SSEFrame } from './sse.ts'
export { isToolInput, MAX_TOOL_INPUT_CHARS } from './tool-input.ts'
