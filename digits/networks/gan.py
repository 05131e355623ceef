# GAN: generates images like those of the dataset. Needs no labels.
#
# Designed for small images whose sides are multiples of 4, such as 28x28 or 32x32. The page of the model
# generates images from random vectors; TensorBoard shows some of them during training.
# Recommended settings: Adam with β₁ 0.5, learning rate 0.0002, batches of 64, 30 epochs, no mean
# subtraction.
#
# paper: Radford, Metz and Chintala, 2015, “Unsupervised Representation Learning with Deep Convolutional Generative
# paper: Adversarial Networks” (DCGAN).
# settings: solver_type=ADAM beta_1=0.5 learning_rate=0.0002 lr_policy=fixed batch_size=64 train_epochs=30 use_mean=none
# multiple: 4
# kinds: image-classification image-processing image-gan generic

import keras
from keras import layers

# The size of the random vector from which the generator creates an image.
NOISE = 100


def smooth(x):
    """Leaky ReLU."""
    return tf.nn.leaky_relu(x, alpha=0.2)


class UserModel(Tower):
    @model_property
    def inference(self):
        if self.is_inference:
            # Predictions start from vectors instead of images.
            noise = tf.reshape(self.x, [-1, NOISE])
        else:
            noise = tf.random.normal([tf.shape(self.x)[0], NOISE])
        self.generator = self.make_generator()
        self.drawn = self.generator(noise, training=self.is_training)
        # From -1..1 to pixels.
        return (self.drawn + 1) * 127.5

    def make_generator(self):
        """The generator: from random vectors to images of -1 to 1, with two upsampling steps."""
        height, width, channels = self.input_shape
        return keras.Sequential(
            [
                layers.Dense(height // 4 * (width // 4) * 128, use_bias=False, name="start"),
                layers.Reshape([height // 4, width // 4, 128]),
                layers.BatchNormalization(momentum=0.9, name="norm1"),
                layers.ReLU(),
                layers.Conv2DTranspose(64, 5, strides=2, padding="same", use_bias=False, name="enlarge1"),
                layers.BatchNormalization(momentum=0.9, name="norm2"),
                layers.ReLU(),
                layers.Conv2DTranspose(
                    channels, 5, strides=2, padding="same", activation="tanh", name="enlarge2"
                ),
            ],
            name="generator",
        )

    def make_discriminator(self):
        """The discriminator: from images to a logit, large for images of the dataset, small for generated ones."""
        return keras.Sequential(
            [
                layers.Conv2D(64, 5, strides=2, padding="same", activation=smooth, name="conv1"),
                layers.Conv2D(128, 5, strides=2, padding="same", use_bias=False, name="conv2"),
                layers.BatchNormalization(momentum=0.9, name="norm"),
                layers.LeakyReLU(0.2),
                layers.Flatten(),
                layers.Dense(1, name="score"),
            ],
            name="discriminator",
        )

    @model_property
    def loss(self):
        new_images = self.inference
        discriminator = self.make_discriminator()
        real = discriminator(self.x / 127.5 - 1, training=self.is_training)
        drawn = discriminator(self.drawn, training=self.is_training)

        # Losses are computed in float32, also in mixed precision.
        real, drawn = tf.cast(real, tf.float32), tf.cast(drawn, tf.float32)

        # The discriminator's targets are 1 for real images and 0 for generated ones; the generator's target is 1.
        entropy = tf.nn.sigmoid_cross_entropy_with_logits
        found_out = entropy(labels=tf.ones_like(real), logits=real) + entropy(
            labels=tf.zeros_like(drawn), logits=drawn
        )
        discriminator_loss = tf.reduce_mean(found_out)
        generator_loss = tf.reduce_mean(entropy(labels=tf.ones_like(drawn), logits=drawn))

        self.summaries.append(tf.summary.scalar("discriminator_loss", discriminator_loss))
        self.summaries.append(tf.summary.scalar("generator_loss", generator_loss))
        self.summaries.append(tf.summary.image("drawn", new_images, max_outputs=8))
        # Each loss updates its own part only, otherwise each part would learn to help the other.
        return [
            {"loss": discriminator_loss, "vars": discriminator.trainable_variables},
            {"loss": generator_loss, "vars": self.generator.trainable_variables},
        ]
