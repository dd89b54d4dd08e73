/**
 * What makes programs use the way out at `url`. curl reads only the small names of these, others only the large
 * ones; Node needs to be told. npm, pip and git follow them without settings of their own.
 */
export function proxyEnv(url: string): Record<string, string> {
  const local = 'localhost,127.0.0.1,::1'
  return {
    http_proxy: url,
    https_proxy: url,
    no_proxy: local,
    HTTP_PROXY: url,
    HTTPS_PROXY: url,
    NO_PROXY: local,
    NODE_USE_ENV_PROXY: '1',
  }
}
