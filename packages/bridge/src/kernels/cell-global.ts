/** The global object by which transformed code reaches its interpreter. */
export const CELL_GLOBAL = '__ash__'
