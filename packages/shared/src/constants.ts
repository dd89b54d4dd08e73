/** Where a server listens unless told otherwise. */
export const DEFAULT_PORT = 4100
export const DEFAULT_HOST = '127.0.0.1'

/** Bridge and server refuse a longer line: larger than any SDK message, small enough to hold in memory. */
export const MAX_LINE_BYTES = 32 * 1024 * 1024
/** Commands a host may have under way on one bridge. */
export const MAX_OUTSTANDING_COMMANDS = 64

export const MAX_MESSAGE_CHARS = 500_000
export const MAX_CONTENT_BLOCKS = 20
export const MAX_JSON_BODY_BYTES = 50 * 1024 * 1024

export const MAX_FILE_BYTES = 100 * 1024 * 1024
export const MAX_FILES_PER_REQUEST = 500
export const MAX_PATH_CHARS = 1024

export const MAX_AGENT_BYTES = 100 * 1024 * 1024
export const MAX_AGENT_FILES = 10_000

export const DEFAULT_EXEC_TIMEOUT_MS = 30_000
export const MAX_EXEC_TIMEOUT_MS = 3_600_000
export const MAX_EXEC_OUTPUT_BYTES = 10 * 1024 * 1024

export const DEFAULT_RUN_TIMEOUT_MS = 300_000
export const MAX_RUN_TIMEOUT_MS = 3_600_000

/** A client that accepts no byte for this long is dropped; its turn goes on. */
export const STUCK_CLIENT_TIMEOUT_MS = 30_000

/** Terminals of one session at a time. */
export const MAX_TERMINALS = 8
/** Columns or rows. */
export const MAX_TERMINAL_SIDE = 1000
/** Of what a terminal says or is told, in one piece. */
export const MAX_TERMINAL_BYTES = 32 * 1024

/** In a workspace, by convention: what a client configures an agent with, and what it knows between runs. */
export const AGENT_CONFIG_FILE = 'agent/config.json'
export const AGENT_STATE_FILE = 'agent/state.json'

export const DEFAULT_TENANT = 'default'
