import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer;
import org.apache.kafka.common.security.oauthbearer.internals.secured.CloseableVerificationKeyResolver;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler;
import org.apache.kafka.common.security.plain.PlainAuthenticateCallback;
import org.apache.kafka.common.security.plain.internals.PlainSaslServer;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMessages.ClientFirstMessage;
import org.jose4j.keys.HmacKey;

/**
 * Who Kafka's own SASL servers say has sent a token, asked over standard input and output.
 *
 * <pre>
 * MECHANISM TOKEN     PLAIN (any password), SCRAM (the first message), UNSECURED or SIGNED (OAUTHBEARER)
 * </pre>
 *
 * TOKEN is hexadecimal, and so is the name that is answered, in UTF-8; "T" stands for a delegation token, "!" for a
 * refusal. Tokens are signed with HS256 and the key that is the first argument.
 */
public final class Names {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);  // what Kafka's classes log
        AuthenticateCallbackHandler unsecured = new OAuthBearerUnsecuredValidatorCallbackHandler();
        unsecured.configure(Map.of(), OAuthBearerLoginModule.OAUTHBEARER_MECHANISM, List.of(jaas()));
        AuthenticateCallbackHandler signed = signed(HEX.parseHex(args[0]));
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                byte[] token = HEX.parseHex(words[1]);
                answer = switch (words[0]) {
                    case "PLAIN" -> plain(token);
                    case "SCRAM" -> scram(token);
                    case "UNSECURED" -> bearer(token, unsecured);
                    default -> bearer(token, signed);
                };
            } catch (Exception | StackOverflowError error) {
                answer = "! " + error.getClass().getName();
            }
            answers.println(answer);
            answers.flush();
        }
    }

    private static String hex(String name) {
        return HEX.formatHex(name.getBytes(StandardCharsets.UTF_8));
    }

    private static String plain(byte[] token) throws Exception {
        PlainSaslServer server = new PlainSaslServer(new Accepting() {
            @Override
            public void handle(Callback[] callbacks) {
                ((PlainAuthenticateCallback) callbacks[1]).authenticated(true);
            }
        });
        server.evaluateResponse(token);
        return hex(server.getAuthorizationID());
    }

    private static String scram(byte[] token) throws Exception {
        ClientFirstMessage first = new ClientFirstMessage(token);
        String name = ScramFormatter.username(first.saslName());
        return first.extensions().tokenAuthenticated() ? "T" : hex(name);
    }

    private static String bearer(byte[] token, AuthenticateCallbackHandler validator) throws Exception {
        OAuthBearerSaslServer server = new OAuthBearerSaslServer(validator);
        byte[] error = server.evaluateResponse(token);
        return error.length > 0 ? "!" : hex(server.getAuthorizationID());
    }

    private static AppConfigurationEntry jaas() {
        return new AppConfigurationEntry(
            OAuthBearerLoginModule.class.getName(), AppConfigurationEntry.LoginModuleControlFlag.REQUIRED, Map.of());
    }

    private static AuthenticateCallbackHandler signed(byte[] key) throws Exception {
        CloseableVerificationKeyResolver resolver = (signature, context) -> new HmacKey(key);
        Constructor<BrokerJwtValidator> made =
            BrokerJwtValidator.class.getDeclaredConstructor(CloseableVerificationKeyResolver.class);
        made.setAccessible(true);
        BrokerJwtValidator validator = made.newInstance(resolver);
        Map<String, Object> configs = new HashMap<>();
        configs.put("sasl.oauthbearer.scope.claim.name", "scope");
        configs.put("sasl.oauthbearer.sub.claim.name", "sub");
        configs.put("sasl.oauthbearer.expected.audience", List.of());
        configs.put("sasl.oauthbearer.allow.unverified.audience", true);
        configs.put("sasl.oauthbearer.allow.unverified.issuer", true);
        validator.configure(configs, OAuthBearerLoginModule.OAUTHBEARER_MECHANISM, List.of(jaas()));
        return new Accepting() {
            @Override
            public void handle(Callback[] callbacks) {
                for (Callback callback : callbacks) {
                    if (callback instanceof OAuthBearerValidatorCallback asked) {
                        try {
                            asked.token(validator.validate(asked.tokenValue()));
                        } catch (Exception error) {
                            asked.error("invalid_token", null, null);
                        }
                    } else if (callback instanceof OAuthBearerExtensionsValidatorCallback extensions) {
                        extensions.inputExtensions().map().forEach((name, value) -> extensions.valid(name));
                    }
                }
            }
        };
    }

    /** What every handler of these tests has in common. */
    private abstract static class Accepting implements AuthenticateCallbackHandler {
        @Override
        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        }

        @Override
        public void close() {
        }
    }
}
