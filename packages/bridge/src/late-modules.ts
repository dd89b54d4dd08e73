/** Node's own modules that a start has no use for: together they would take a fifth of its time. */
export const childProcess = () => process.getBuiltinModule('node:child_process')
export const nodeModule = () => process.getBuiltinModule('node:module')
export const tty = () => process.getBuiltinModule('node:tty')
export const util = () => process.getBuiltinModule('node:util')
export const vm = () => process.getBuiltinModule('node:vm')
